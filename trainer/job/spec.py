"""The shape of a job spec, the only file that a user edits; `rules.py` has the rules that concern several fields."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, GetPydanticSchema
from pydantic_core import core_schema

from trainer.job.data import Data, DataName
from trainer.job.fields import Cores, Count, Positive, Quantity, Replicas, Strict, Text, Value, Word, short
from trainer.job.kubernetes import Kubernetes, Name, Pod, Variable
from trainer.job.names import TASK_TYPES, TaskType
from trainer.job.strategies import APIS, PROGRAM, STRATEGIES, WORKLOAD, Api, Runs, Strategy
from trainer.job.tracking import Notify, Tracking
from trainer.job.train import Begin, KeepBest, Train

OUR_IMAGES = {"trainer:cpu": "cpu", "trainer:cuda": "cuda"}
"""The images built by images/Dockerfile, and their targets there."""


def _name_in(table: Mapping[str, object]) -> GetPydanticSchema:
    """Returns the schema of a Literal of the table's keys."""
    return GetPydanticSchema(lambda _source, _handler: core_schema.literal_schema(list(table)))


def _group_from_count(value: object) -> object:
    return {"replicas": value} if isinstance(value, int) and not isinstance(value, bool) else value


def _list_from_text(value: object) -> object:
    return [value] if isinstance(value, str) else value


Program = Annotated[list[Word], Field(min_length=1)]
Env = dict[Variable, Word]
Files = Annotated[list[Text], short(_list_from_text, Text | list[Text])]


class TaskGroup(Strict):
    """All tasks of one type. A plain number is short for `{replicas: number}`."""

    replicas: Replicas = 1
    """Number of tasks of this type."""
    cpu: Cores | None = None
    """Cores per task; sets the thread counts. Also in Kubernetes' notation: 300m."""
    memory: Quantity | None = None
    """Memory limit per task, in Kubernetes' notation: 200Mi, 1.5Gi, 1G."""
    gpus: int = Field(default=0, ge=0, le=1024)
    """GPUs per task. A task that finds fewer exits with code 12."""
    cpu_devices: int = Field(default=1, ge=1, le=64)
    """Logical CPU devices per task, each a replica: to try out on a CPU a job for several GPUs."""
    program: Program | None = None
    """The program of these tasks. Default: that of the job."""
    image: Text | None = None
    """The container image of these tasks. Default: that of the job."""
    env: Env = {}
    """Further environment variables of these tasks, which replace those of the job by name."""
    kubernetes: Pod = Pod()
    """Settings of these pods, which replace those of the section `kubernetes`; labels, annotations and env are
    merged."""


Group = Annotated[TaskGroup, short(_group_from_count, TaskGroup | Replicas)]


NO_TASKS = TaskGroup.model_construct(replicas=0)


class Tasks(Strict):
    """Number of tasks of each type. parameter_server and graph add a chief if there is none."""

    chief: Group | None = None
    """Coordinates; under multi_worker_mirrored it trains like a worker. At most one."""
    worker: Group = Field(default=NO_TASKS, json_schema_extra={"default": 1})  # filled in by validate.py
    """Trains. Default: 1, but none for a program with a chief."""
    ps: Group | None = None
    """A parameter server, which holds the variables. For parameter_server only."""
    evaluator: Group | None = None
    """Scores each checkpoint beside the training. At most one."""

    def group(self, task_type: str) -> TaskGroup | None:
        group: TaskGroup | None = getattr(self, task_type)
        return group if group and group.replicas else None

    def of(self, task_type: str) -> TaskGroup:
        """Returns the settings of a type; the workers' if the spec lacks the type (TF_CONFIG of another program)."""
        return self.group(task_type) or self.worker

    def counts(self) -> dict[TaskType, int]:
        """Returns the replicas of each type in the spec, in the order of TASK_TYPES."""
        return {t: group.replicas for t in TASK_TYPES if (group := self.group(t)) is not None}


class Outer(Strict):
    """The optimizer that applies the mean change of a round to the weights, as in DiLoCo (arXiv 2311.08105)."""

    optimizer: Literal["nesterov"] = "nesterov"
    """SGD with Nesterov's momentum."""
    learning_rate: Positive = 0.7
    """1 with momentum 0 is the plain average."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Share of the earlier rounds' changes that is added, below 1."""


class Communication(Strict):
    """How replicas exchange gradients and weights: all-reduce of multi_worker_mirrored (CommunicationOptions) and of
    mirrored (CrossDeviceOps), and the messages between workers and ps of parameter_server."""

    implementation: Literal["auto", "ring", "nccl", "hierarchical_copy", "reduction_to_one_device"] = "auto"
    """The all-reduce algorithm. ring, TensorFlow's own, is for multi_worker_mirrored; there auto is trainer's ring if
    tasks have one CPU device and no GPU. The last two are for mirrored."""
    bytes_per_pack: int | None = Field(default=None, ge=0, lt=2**31)
    """Gradients are sent in packs of about this size while those of earlier layers are computed. Default: 2 MiB; 0:
    one pack."""
    gradients: Literal["float32", "bfloat16", "powersgd"] = "float32"
    """How multi_worker_mirrored sends gradients. bfloat16, also of parameter_server, halves the bytes; powersgd sends
    products of two thin matrices (arXiv 1905.13727)."""
    rank: int = Field(default=4, ge=1, le=64)
    """Columns of the matrices of powersgd."""
    weights: Literal["float32", "bfloat16"] = "float32"
    """How workers of parameter_server read the weights, which the ps keep in float32. bfloat16 halves the bytes."""
    every: int = Field(default=1, ge=1, lt=2**31)
    """Steps of a round, in which each replica trains on its own batches alone. At its end multi_worker_mirrored
    averages the weights of all replicas; a worker of parameter_server sends what has changed, and reads all again. 1:
    gradients are sent in each step."""
    warmup_steps: int = Field(default=0, ge=0, lt=2**63)
    """First steps of the job in which gradients are added up in each step, before the first round."""
    outer: Outer | None = None
    """Applies the mean change of a round with momentum, instead of only averaging the weights."""


class Deadlines(Strict):
    """Limits in seconds. Every wait in a job ends at one of them."""

    start: Positive = 120
    """Time for all tasks to come after the chief has started, and for a task to find its chief. Default on Kubernetes:
    1800."""
    rejoin: Positive = 120
    """Time for a lost task, or for its replacement, to come back. Default on Kubernetes: 1800."""
    hang: Positive = 30
    """A child that has imported TensorFlow and sends no sign of life for this long is killed and replaced. On Linux the
    time does not count in which it waits for a CPU."""
    progress: Positive = 600
    """A running cluster that makes no new step for this long is re-formed."""
    task_lost: Positive = 10
    """A task whose supervisor has been silent for this long is lost."""
    chief_lost: Positive = 120
    """A task gives up when its chief, from which it has heard, has been silent for this long. Default on Kubernetes:
    1800, where another pod must replace the chief."""
    evaluation: Positive = 3600
    """Time for the final evaluation, and for the evaluator to score the last checkpoint."""
    stop: Positive = 8
    """Time from SIGTERM to the exit, including the checkpoint."""
    notify: Positive = 10
    """Time for `notify` after the end of the job; after SIGTERM at most what is left of `stop`. The server of
    `tracking` may be away for as long then."""
    job: Positive | None = None
    """Time for the whole job, including restarts. Default: no limit."""


class Outside(Strict):
    """Source of the value of a secret environment variable."""

    secret: Name | None = None
    """On Kubernetes: the Secret that holds the value."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]{1,253}$")] | None = None
    """The key in that Secret. Default: the variable's name."""
    file: Text | None = None
    """On compose and local: a file, relative to the spec. Default: the variable of this name in the environment of
    trainer or compose."""


Device = Annotated[str, Field(pattern=r"^(CPU|GPU):[0-9]{1,3}$")]


class Tpu(Strict):
    """The TPU to use (tf.distribute.cluster_resolver.TPUClusterResolver)."""

    address: Text = "local"
    """local, the TPU's name in Google Cloud, or grpc://host:port."""
    cores: Count = 8
    """Number of TPU cores, each a replica."""


class JobSpec(Strict):
    """A distributed TensorFlow training job."""

    name: str
    """A DNS label (RFC 1035). Names every task, container and pod, and the default model_dir."""
    strategy: Annotated[str, _name_in(STRATEGIES)]
    """The tf.distribute strategy. mirrored, central_storage, one_device and tpu train in one task; graph runs a
    workload's compute()."""
    api: Annotated[str, _name_in(APIS)] = "loop"
    """The training code: trainer's loop, the workload's compile and fit, or its Estimator contract."""
    workload: Text = "mnist"
    """The model and its data: mnist or digits; for graph sum, mean, ensemble, matmul, matpow or remote_gpu; or a .py
    file, relative to the spec."""
    program: Program | None = None
    """A program of your own, which every task runs in place of a workload: [python, train.py, --epochs=3]. $(NAME) is
    replaced by the task's environment variable of that name."""
    python: Text | None = None
    """The interpreter that `python` in `program` means, on local: a path, relative to the spec. Default: the one that
    runs trainer; in containers the image's."""
    working_dir: Text | None = None
    """The folder where the program starts: in the folder of `code`, or an absolute path in the image."""
    resume: Literal["checkpoint", "none"] = "checkpoint"
    """Whether a program that is started again continues. none: the loss of a task ends the job."""
    success: Literal["chief", "all_workers"] = "chief"
    """The tasks of which all programs must exit with 0 before the job has succeeded. The others are stopped then."""
    settings: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Value] = {}
    """Values that replace those in the workload's SETTINGS."""
    dataset: Text | None = None
    """mnist, digits, or an .npz file with x_train, y_train, x_test and y_test, and optionally x_validation and
    y_validation. Default: the workload's."""
    dataset_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the arrays in your own .npz file, not of the file (sha256sum). The error message for a wrong value
    has the right one. Those of mnist and digits are built in."""
    data: dict[DataName, Data] = {}
    """Folders of data by name, as in {train: {path: ./records}}; `trainer.data("train")` is the path in every task."""
    code: Files = []
    """Files that every task gets with the workload file, in the same structure: a folder, or a list of folders and
    files, relative to the spec. Default for a program: the folder of the spec; []: the image has them."""
    init_from: Begin | None = None
    """A trained model whose weights a new job begins with, where names and shapes fit. The optimizer's state is new."""
    keep_best: KeepBest | None = None
    """Keeps the best checkpoint in model_dir/best and exports its model as export/best.keras. Checkpoints are compared
    every train.checkpoint_steps, so training pauses for a validation then."""
    image: Text | None = None
    """Container image of every task. Default: trainer:cpu, or trainer:cuda if a task asks for GPUs."""
    tasks: Tasks = Field(default=Tasks(), json_schema_extra={"default": {"worker": 1}})
    devices: Annotated[list[Device], Field(min_length=1)] | None = None
    """The devices of a task to compute on, each a replica: [GPU:0, GPU:2]. Default: all GPUs, or all CPU devices
    without a GPU."""
    job_name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] = "worker"
    """The NAME in /job:NAME/task:0 of the servers of a graph job."""
    tpu: Tpu = Tpu()
    train: Train = Train()
    communication: Communication = Communication()
    model_dir: Text | None = None
    """The folder for checkpoints, metrics, exports and result.json. Default: runs/<name>."""
    check_exports: bool = True
    """After training, loads the exported model in a new process and compares its outputs: seconds at the end of the
    job, and about 300 MB."""
    env: Env = {}
    """Environment variables of every task; for confidential values use `secrets`."""
    secrets: dict[Variable, Outside] = {}
    """Environment variables of every task whose values are stored elsewhere, as in {API_KEY: {secret: mine, key:
    api}}."""
    warm_standby: bool = True
    """Keeps a second child with TensorFlow loaded, so that a restart takes a second (about 300 MB per task, 50 MB per
    server)."""
    max_restarts: int = Field(default=5, ge=0, lt=2**31)
    """How many times in a row the cluster is re-formed, or a ps-worker restarted, without a new step. The next failure
    ends the job with exit code 14."""
    page: Literal["loopback", "none", "network"] = "loopback"
    """The job's page, which the chief serves: to this machine alone (`trainer ui` opens it from others), not at all, or
    to everybody who reaches the chief's control port."""
    deadlines: Deadlines = Deadlines()
    tracking: Tracking | None = None
    """Sends the job's figures to an experiment tracker."""
    notify: Notify | None = None
    """Reports the end of the job."""
    kubernetes: Kubernetes = Kubernetes()

    @property
    def traits(self) -> Strategy:
        return STRATEGIES[self.strategy]

    @property
    def api_traits(self) -> Api:
        return APIS[self.api]

    @property
    def runs(self) -> Runs:
        return PROGRAM if self.program else WORKLOAD

    @property
    def container_image(self) -> str:
        groups = (self.tasks.chief, self.tasks.worker, self.tasks.ps, self.tasks.evaluator)
        return self.image or ("trainer:cuda" if any(group and group.gpus for group in groups) else "trainer:cpu")

    def image_of(self, task_type: str) -> str:
        return self.tasks.of(task_type).image or self.container_image

    def env_of(self, task_type: str) -> dict[str, str]:
        """Returns the plain environment variables of a type's tasks."""
        return {**self.env, **self.tasks.of(task_type).env}

    def program_of(self, task_type: str) -> list[str]:
        """Returns the program of a type's tasks; empty if the job has a workload."""
        return (self.program and self.tasks.of(task_type).program) or self.program or []

    def pod_of(self, task_type: str) -> Pod:
        """Returns the settings of a type's pods."""
        job, group = self.kubernetes, self.tasks.of(task_type).kubernetes
        set_by_group = {key: getattr(group, key) for key in group.model_fields_set}
        merged = {key: {**getattr(job, key), **getattr(group, key)} for key in ("labels", "annotations", "env")}
        return Pod.model_construct(**{**{key: getattr(job, key) for key in Pod.model_fields}, **set_by_group, **merged})

    @property
    def directory(self) -> str:
        return self.model_dir or f"runs/{self.name}"

    def digest(self) -> str:
        """A short digest of the spec, by which the tasks of a job compare theirs."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]
