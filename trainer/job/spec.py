"""The job spec: the only thing a user edits. Unknown keys are refused; see `load.py` for reading one."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from trainer.job.names import DNS_LABEL, MAX_DNS_LABEL, TASK_TYPES, TaskType, container_address, host_name


def _number_from_text(value: Any) -> Any:
    # YAML 1.1 reads 1e-4, which lacks a point, as text (https://yaml.org/type/float.html).
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _group_from_count(value: Any) -> Any:
    return {"replicas": value} if isinstance(value, int) and not isinstance(value, bool) else value


# 2**31: above any real job, and what a timer and a 32-bit number can hold.
Positive = Annotated[float, Field(gt=0, lt=2**31, allow_inf_nan=False), BeforeValidator(_number_from_text)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
# TF_CONFIG lists every address and is one environment variable (LONGEST_VARIABLE): more never fit.
Replicas = Annotated[int, Field(ge=1, le=8192)]
# Rust's regex sees only valid Unicode, so this also refuses half a surrogate pair, which no file name can hold.
Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")]


LONGEST_VARIABLE = 128 * 1024
"""Bytes of an environment variable with its name: MAX_ARG_STRLEN of Linux, with 4 KiB pages (execve(2))."""
OUR_IMAGES = {"trainer:cpu": "cpu", "trainer:cuda": "cuda"}
"""The images of images/Dockerfile, by its targets."""
# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


Quantity = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$")]


class Strict(BaseModel):
    # The text under a field is its description in `trainer schema`; see `load.schema`.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class TaskGroup(Strict):
    """All tasks of one type. A plain number is short for `{replicas: number}`."""

    replicas: Replicas = 1
    cpu: Positive | None = None
    """Cores per task; thread counts follow it."""
    memory: Quantity | None = None
    """Memory limit per task, as Kubernetes writes it: 2Gi."""
    gpus: int = Field(default=0, ge=0, lt=2**31)
    """GPUs per task. A task that sees fewer stops with exit code 12."""


Group = Annotated[TaskGroup, BeforeValidator(_group_from_count, json_schema_input_type=TaskGroup | Replicas)]


class Tasks(Strict):
    """How many tasks of each type. parameter_server adds its chief by itself."""

    chief: Group | None = None
    worker: Group = TaskGroup()
    ps: Group | None = None
    evaluator: Group | None = None

    def group(self, task_type: str) -> TaskGroup | None:
        group: TaskGroup | None = getattr(self, task_type)
        return group

    def counts(self) -> dict[TaskType, int]:
        """Replicas of each type that is there, in the order of TASK_TYPES."""
        return {t: group.replicas for t in TASK_TYPES if (group := self.group(t)) is not None}


class Train(Strict):
    """How to train. One of steps and epochs; one of batch_size and global_batch_size."""

    steps: Count | None = None
    """Optimizer steps of the whole job. Default 1000, if epochs is not given either."""
    epochs: Count | None = None
    """Passes over the training examples; turned into steps once the data is known."""
    batch_size: Count | None = None
    """Examples per replica and step. Default 64, if global_batch_size is not given either."""
    global_batch_size: Count | None = None
    """Examples per step over all replicas in sync; must divide evenly."""
    optimizer: Literal["adam", "sgd", "rmsprop", "adagrad"] = "adam"
    learning_rate: Positive = 1e-3
    learning_rate_scaling: Literal["none", "linear", "sqrt"] = "none"
    """Multiply the rate by the replicas in sync, or by their square root."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    deterministic: bool = False
    """TensorFlow's op determinism: bit-for-bit repeatable, slower."""
    mixed_precision: Literal["none", "bfloat16", "float16"] = "none"
    steps_per_call: int = Field(default=10, ge=1, le=10_000)
    """Steps per in-graph loop: also the unit of work that a dead ps-worker loses."""
    checkpoint_steps: Count = 500
    keep_checkpoints: Count = 3
    log_steps: Count = 100


class Communication(Strict):
    """All-reduce of multi_worker_mirrored (tf.distribute.experimental.CommunicationOptions)."""

    implementation: Literal["auto", "ring", "nccl"] = "auto"
    bytes_per_pack: int = Field(default=0, ge=0, lt=2**31)
    """Gradients are packed into all-reduces of about this size; 0 leaves it to TensorFlow."""


class Deadlines(Strict):
    """Seconds. Nothing waits without one of these."""

    rendezvous: Positive = 120
    """For all tasks to be there and agree, at the start and after each loss."""
    hang: Positive = 30
    """A child that has imported TensorFlow and gives no sign of life for this long is killed and replaced."""
    progress: Positive = 600
    """A running cluster without a new step for this long is re-formed."""
    task_lost: Positive = 10
    """A task whose supervisor has been silent for this long is lost."""
    chief_lost: Positive = 120
    """A task gives up when its chief has been silent for this long."""
    stop: Positive = 8
    """From SIGTERM to the end, checkpoint included."""


Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$")]
LabelKey = Annotated[str, Field(pattern=r"^([-.a-z0-9]{1,253}/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?$")]
Labels = dict[LabelKey, LabelValue]


class Volume(Strict):
    """What holds model_dir: a new claim of this size, or one of the others."""

    size: Quantity = "1Gi"
    """Of the claim <name> that is made for the job."""
    storage_class: Name | None = None
    """Of the new claim. Default: the cluster's default class."""
    claim: Name | None = None
    """A PersistentVolumeClaim that is there already; the job writes to the folder <name> in it."""
    host_path: Annotated[str, Field(pattern=r"^/[^\x00-\x1f\x7f]*$")] | None = None
    """A folder of the node; Pod Security "restricted" forbids it."""
    empty_dir: bool = False
    """The chief's pod's own: a new pod starts from step 0, and the model goes with the pod."""


class Kubernetes(Strict):
    """What only Kubernetes needs to know."""

    volume: Volume = Volume()
    node_selector: Labels = {}
    tolerations: list[dict[str, Any]] = []
    """As in a pod's spec."""
    affinity: dict[str, Any] = {}
    """As in a pod's spec."""
    priority_class: Name | None = None
    image_pull_secrets: list[Name] = []
    env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], Text] = {}
    """More environment variables of every task."""
    labels: Labels = {}
    """More labels of every object."""
    gpu_resource: Annotated[str, Field(pattern=r"^[-.a-z0-9]{1,253}/[-._A-Za-z0-9]{1,63}$")] = "nvidia.com/gpu"
    """Resource that `gpus` counts."""
    queue: LabelValue | None = None
    """Kueue's local queue; the Jobs start suspended then."""
    suspend: bool = False
    """Nothing runs until somebody sets the Jobs' suspend to false."""
    egress: bool = False
    """Whether the pods may reach what is not their job."""
    tensorboard: bool = False
    """A Deployment that shows the curves; reached by `kubectl port-forward`."""
    ttl_seconds: Count = 604_800
    """Finished Jobs are removed after this long; the volume stays."""


class JobSpec(Strict):
    """A distributed TensorFlow training job."""

    name: str
    """RFC 1035 label; names every container, pod and the default model_dir."""
    strategy: Literal["parameter_server", "multi_worker_mirrored"]
    workload: Text = "mnist"
    """One of ours (mnist, digits), or a Python file, relative to the spec."""
    dataset: Text | None = None
    """A known dataset (mnist, digits), or an .npz with x_train, y_train, x_test, y_test. Default: the workload's."""
    dataset_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the arrays of an .npz of your own; those of known datasets are built in."""
    image: Text | None = None
    """Container image of every task. Default trainer:cpu, or trainer:cuda where a task asks for GPUs."""
    tasks: Tasks = Tasks()
    train: Train = Train()
    communication: Communication = Communication()
    model_dir: Text | None = None
    """Checkpoints, metrics, exports and result.json. Default runs/<name>."""
    warm_standby: bool = True
    """Keep a second child with TensorFlow imported, so that a restart takes a second (about 300 MB per task)."""
    max_restarts: int = Field(default=5, ge=0, lt=2**31)
    """Generations in a row that may end without a new step."""
    deadlines: Deadlines = Deadlines()
    kubernetes: Kubernetes = Kubernetes()

    @model_validator(mode="before")
    @classmethod
    def _parameter_server_has_a_chief(cls, value: Any) -> Any:
        # ParameterServerStrategy needs a coordinator; left out of the cluster, TensorFlow invents
        # localhost:random for it, which no other container can reach (eager/remote.py).
        if not isinstance(value, dict) or value.get("strategy") != "parameter_server":
            return value
        tasks = value.get("tasks", {})
        if isinstance(tasks, dict) and tasks.get("chief") is None:
            return {**value, "tasks": {**tasks, "chief": {"replicas": 1}}}
        return value

    @model_validator(mode="after")
    def _rules_between_fields(self) -> JobSpec:
        problems = [*_name_problems(self), *_task_problems(self), *_train_problems(self)]
        if problems:
            raise PydanticCustomError("rules", "rules", {"problems": problems})
        return self

    @property
    def container_image(self) -> str:
        groups = (self.tasks.chief, self.tasks.worker, self.tasks.ps, self.tasks.evaluator)
        return self.image or ("trainer:cuda" if any(group and group.gpus for group in groups) else "trainer:cpu")

    @property
    def directory(self) -> str:
        return self.model_dir or f"runs/{self.name}"


class Problem(NamedTuple):
    """Path in the spec, the value found there, and the rule with its way out."""

    path: str
    value: object
    rule: str
    needs: tuple[str, ...] = ()
    """Other settings that the rule looks at: while one of those is wrong, nobody can tell."""


def _name_problems(spec: JobSpec) -> list[Problem]:
    if not DNS_LABEL.fullmatch(spec.name):
        rule = "must be lower-case letters, digits and '-', from a letter to a letter or digit (RFC 1035)"
        return [Problem("name", spec.name, rule)]
    longest = max((host_name(spec.name, t, n - 1) for t, n in spec.tasks.counts().items()), key=len)
    if (over := len(longest) - MAX_DNS_LABEL) > 0:
        rule = f"{longest} would have {len(longest)} characters, DNS allows {MAX_DNS_LABEL}; shorten it by {over}"
        return [Problem("name", spec.name, rule)]
    # As JSON each address has two quotes, a comma and a blank; around them stand the names of types, and the task.
    counts = spec.tasks.counts()
    size = sum(len(container_address(spec.name, t, i)) + 4 for t, n in counts.items() for i in range(n)) + 200
    if size > LONGEST_VARIABLE:
        rule = (
            f"TF_CONFIG would take about {size:,} bytes, Linux allows {LONGEST_VARIABLE:,} for an environment "
            "variable; use fewer tasks, or a shorter name"
        )
        return [Problem("tasks", f"{sum(counts.values()):,} tasks", rule)]
    return []


def _task_problems(spec: JobSpec) -> list[Problem]:
    problems: list[Problem] = []
    counts = spec.tasks.counts()
    volume = spec.kubernetes.volume
    if (volume.claim is not None) + (volume.host_path is not None) + volume.empty_dir > 1:
        rule = "give at most one of claim, host_path and empty_dir"
        problems.append(Problem("kubernetes.volume", volume.model_dump(exclude_defaults=True), rule))
    for single in ("chief", "evaluator"):
        if counts.get(single, 1) > 1:
            rule = f"there is at most one {single}; set 1"
            problems.append(Problem(f"tasks.{single}.replicas", counts[single], rule))
    if spec.strategy == "multi_worker_mirrored" and "ps" in counts:
        rule = "multi_worker_mirrored has no ps (TensorFlow would wait for it for ever); remove tasks.ps"
        problems.append(Problem("tasks.ps", counts["ps"], rule, ("strategy",)))
    if spec.strategy == "parameter_server" and "ps" not in counts:
        problems.append(Problem("tasks.ps", None, "parameter_server needs at least one ps; add ps: 1"))
    gpus = spec.tasks.worker.gpus
    if spec.strategy == "parameter_server" and gpus > 1:
        # keras#18624: variables without aggregation fail with several replicas per ps-worker.
        rule = "a ps-worker trains on at most one GPU; use more workers"
        problems.append(Problem("tasks.worker.gpus", gpus, rule))
    chief = spec.tasks.chief
    if spec.strategy == "multi_worker_mirrored" and chief is not None and chief.gpus != gpus:
        rule = f"the chief trains too: give it the workers' {gpus}"
        problems.append(Problem("tasks.chief.gpus", chief.gpus, rule, ("strategy", "tasks.worker")))
    return problems


def _train_problems(spec: JobSpec) -> list[Problem]:
    problems: list[Problem] = []
    for first, second in (("steps", "epochs"), ("batch_size", "global_batch_size")):
        if getattr(spec.train, first) is not None and (value := getattr(spec.train, second)) is not None:
            problems.append(Problem(f"train.{second}", value, f"give {first} or {second}, not both"))
    if rule := batch_rule(spec, spec.tasks.counts()):
        needs = ("strategy", "tasks.chief", "tasks.worker")
        problems.append(Problem("train.global_batch_size", spec.train.global_batch_size, rule, needs))
    return problems


def batch_rule(spec: JobSpec, counts: dict[TaskType, int]) -> str | None:
    """The rule that the global batch size breaks in a cluster of these counts, if it does."""
    batch, replicas = spec.train.global_batch_size, replicas_in_sync(spec, counts)
    if batch is None or batch % replicas == 0:
        return None
    lower, upper = batch // replicas * replicas, (batch // replicas + 1) * replicas
    nearest = f"{lower} or {upper}" if lower else str(upper)
    return f"must be divisible by the {replicas} replicas in sync; the nearest that are: {nearest}"


def replicas_in_sync(spec: JobSpec, counts: dict[TaskType, int]) -> int:
    """Model copies whose gradients make one step (`num_replicas_in_sync`), for a cluster of these counts."""
    if spec.strategy == "parameter_server":
        return 1
    return (counts.get("chief", 0) + counts.get("worker", 0)) * max(1, spec.tasks.worker.gpus)


def batch_sizes(spec: JobSpec, counts: dict[TaskType, int]) -> tuple[int, int]:
    """(global, per replica) batch size: examples in one step, and in one replica's part of it."""
    replicas = replicas_in_sync(spec, counts)
    if spec.train.global_batch_size is not None:
        return spec.train.global_batch_size, spec.train.global_batch_size // replicas
    per_replica = spec.train.batch_size or 64
    return per_replica * replicas, per_replica


def memory_bytes(quantity: str) -> int:
    """Bytes of a memory limit as Kubernetes writes it: 1.5Gi."""
    number = quantity.rstrip("".join(_BYTES))
    return int(float(number) * _BYTES[quantity[len(number) :]])


def learning_rate(spec: JobSpec, counts: dict[TaskType, int]) -> float:
    """The optimizer's rate after scaling by the replicas in sync."""
    replicas = replicas_in_sync(spec, counts)
    factor = {"none": 1.0, "linear": float(replicas), "sqrt": math.sqrt(replicas)}[spec.train.learning_rate_scaling]
    return spec.train.learning_rate * factor
