"""The shape of a job spec, the only file that a user edits; `rules.py` has the rules between its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, GetPydanticSchema
from pydantic_core import core_schema

from trainer.job.fields import Count, Positive, Quantity, Replicas, Strict, Text, Value
from trainer.job.kubernetes import Kubernetes, Name, Variable
from trainer.job.names import TASK_TYPES, TaskType
from trainer.job.strategies import APIS, STRATEGIES, Api, Strategy

OUR_IMAGES = {"trainer:cpu": "cpu", "trainer:cuda": "cuda"}
"""The images of images/Dockerfile, by its targets."""


def _name_in(table: Mapping[str, object]) -> GetPydanticSchema:
    """The schema of a Literal of the table's keys."""
    return GetPydanticSchema(lambda _source, _handler: core_schema.literal_schema(list(table)))


def _group_from_count(value: object) -> object:
    return {"replicas": value} if isinstance(value, int) and not isinstance(value, bool) else value


def _numbers_from_text(value: object) -> object:
    # The keys of a JSON object are text.
    if not isinstance(value, dict):
        return value
    return {int(key) if isinstance(key, str) and key.isdecimal() else key: rate for key, rate in value.items()}


class TaskGroup(Strict):
    """All tasks of one type. A plain number is short for `{replicas: number}`."""

    replicas: Replicas = 1
    cpu: Positive | None = None
    """Cores per task; thread counts follow it."""
    memory: Quantity | None = None
    """Memory limit per task, as Kubernetes writes it: 2Gi."""
    gpus: int = Field(default=0, ge=0, lt=2**31)
    """GPUs per task. A task that sees fewer stops with exit code 12."""
    cpu_devices: int = Field(default=1, ge=1, le=64)
    """Logical CPU devices per task, each a replica: several GPUs simulated on a CPU."""


Group = Annotated[TaskGroup, BeforeValidator(_group_from_count, json_schema_input_type=TaskGroup | Replicas)]


class Tasks(Strict):
    """How many tasks of each type. parameter_server and graph add a chief if there is none."""

    chief: Group | None = None
    worker: Group = TaskGroup()
    ps: Group | None = None
    evaluator: Group | None = None

    def group(self, task_type: str) -> TaskGroup | None:
        group: TaskGroup | None = getattr(self, task_type)
        return group

    def of(self, task_type: str) -> TaskGroup:
        """Settings of a type; the workers' if the spec has none (a TF_CONFIG of another program)."""
        return self.group(task_type) or self.worker

    def counts(self) -> dict[TaskType, int]:
        """Replicas of each type that the spec has, in the order of TASK_TYPES."""
        return {t: group.replicas for t in TASK_TYPES if (group := self.group(t)) is not None}


RateTable = Annotated[dict[Count, Positive], Field(min_length=1), BeforeValidator(_numbers_from_text)]


class Train(Strict):
    """How to train. One of steps and epochs; one of batch_size and global_batch_size."""

    steps: Count | None = None
    """Optimizer steps of the whole job. Default 1000, if epochs is not given either."""
    epochs: Count | None = None
    """Passes over the training examples, converted to steps when the data is loaded."""
    batch_size: Count | None = None
    """Examples per replica and step. Default 64, if global_batch_size is not given either."""
    global_batch_size: Count | None = None
    """Examples per step over all replicas in sync; must divide evenly."""
    optimizer: Literal["adam", "sgd", "rmsprop", "adagrad"] = "adam"
    learning_rate: Positive = 1e-3
    learning_rates: RateTable | None = None
    """Instead of learning_rate: the rate for each global batch size, as in {64: 0.001, 128: 0.0015}."""
    learning_rate_scaling: Literal["none", "linear", "sqrt"] = "none"
    """Multiply the rate by the replicas in sync, or by their square root."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    deterministic: bool = False
    """TensorFlow's op determinism: repeatable bit for bit, but slower."""
    mixed_precision: Literal["none", "bfloat16", "float16"] = "none"
    steps_per_call: int = Field(default=10, ge=1, le=10_000)
    """Steps per in-graph loop: also the unit of work that a dead ps-worker loses."""
    checkpoint_steps: Count = 500
    keep_checkpoints: Count = 3
    log_steps: Count = 100


class Communication(Strict):
    """All-reduce of multi_worker_mirrored (CommunicationOptions) and of mirrored (CrossDeviceOps)."""

    implementation: Literal["auto", "ring", "nccl", "hierarchical_copy", "reduction_to_one_device"] = "auto"
    """ring is for multi_worker_mirrored, the last two are for mirrored."""
    bytes_per_pack: int | None = Field(default=None, ge=0, lt=2**31)
    """Gradients are sent in packs of about this size, while those of earlier layers are still computed. Default 2 MiB;
    0 sends them in one pack."""
    gradients: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 halves what multi_worker_mirrored sends, and rounds the sum of gradients to 8 bits of mantissa."""


class Deadlines(Strict):
    """Seconds. Nothing waits without one of these."""

    rendezvous: Positive = 120
    """Until all tasks are present and agree, at the start and after each loss."""
    hang: Positive = 30
    """A child that has imported TensorFlow and then sends no sign of life for this long is killed and replaced."""
    progress: Positive = 600
    """A running cluster without a new step for this long is re-formed."""
    task_lost: Positive = 10
    """A task whose supervisor has been silent for this long is lost."""
    chief_lost: Positive = 120
    """A task gives up when its chief has been silent for this long."""
    evaluation: Positive = 3600
    """After the training: until the evaluator has scored the last checkpoint. A missing score is a warning."""
    stop: Positive = 8
    """From SIGTERM to the end of the task, including a checkpoint."""


class Outside(Strict):
    """Source of the value of an environment variable."""

    secret: Name | None = None
    """On Kubernetes: the Secret that holds it."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]{1,253}$")] | None = None
    """The key in that Secret. Default: the variable's name."""
    file: Text | None = None
    """On compose and local: a file, relative to the spec. Default: the variable in trainer's own environment."""


Device = Annotated[str, Field(pattern=r"^(CPU|GPU):[0-9]{1,3}$")]


class Tpu(Strict):
    """Which TPU (tf.distribute.cluster_resolver.TPUClusterResolver)."""

    address: Text = "local"
    """local, the TPU's name in Google Cloud, or grpc://host:port."""
    cores: Count = 8
    """Each is a replica."""


class JobSpec(Strict):
    """A distributed TensorFlow training job."""

    name: str
    """RFC 1035 label; names every container, pod and the default model_dir."""
    strategy: Annotated[str, _name_in(STRATEGIES)]
    """mirrored, central_storage, one_device and tpu train in one task; graph runs a workload's compute()."""
    api: Annotated[str, _name_in(APIS)] = "loop"
    """What trains: trainer's loop, the workload's compile and fit, or its input_fn, train spec and eval spec."""
    workload: Text = "mnist"
    """A built-in workload (mnist, digits; for graph sum, mean, ...) or a Python file, relative to the spec."""
    settings: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Value] = {}
    """Values that replace those in the workload's SETTINGS."""
    dataset: Text | None = None
    """A known dataset (mnist, digits), or an .npz with x_train, y_train, x_test, y_test. Default: the workload's."""
    dataset_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the arrays of your own .npz; those of known datasets are built in."""
    image: Text | None = None
    """Container image of every task. Default trainer:cpu, or trainer:cuda where a task asks for GPUs."""
    tasks: Tasks = Tasks()
    devices: Annotated[list[Device], Field(min_length=1)] | None = None
    """The devices of a task that compute: [GPU:0, GPU:2]. Default all GPUs, or all CPU devices if it has none."""
    job_name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] = "worker"
    """The NAME in /job:NAME/task:0, for the servers of a graph job."""
    tpu: Tpu = Tpu()
    train: Train = Train()
    communication: Communication = Communication()
    model_dir: Text | None = None
    """Checkpoints, metrics, exports and result.json. Default runs/<name>."""
    secrets: dict[Variable, Outside] = {}
    """Environment variables of every task with values from elsewhere, as in {API_KEY: {secret: mine, key: api}}."""
    warm_standby: bool = True
    """Keep a second child with TensorFlow imported, so that a restart takes a second (about 300 MB per task)."""
    max_restarts: int = Field(default=5, ge=0, lt=2**31)
    """Consecutive generations that may end without a new step."""
    deadlines: Deadlines = Deadlines()
    kubernetes: Kubernetes = Kubernetes()

    @property
    def traits(self) -> Strategy:
        return STRATEGIES[self.strategy]

    @property
    def api_traits(self) -> Api:
        return APIS[self.api]

    @property
    def container_image(self) -> str:
        groups = (self.tasks.chief, self.tasks.worker, self.tasks.ps, self.tasks.evaluator)
        return self.image or ("trainer:cuda" if any(group and group.gpus for group in groups) else "trainer:cpu")

    @property
    def directory(self) -> str:
        return self.model_dir or f"runs/{self.name}"
