"""Traits of the strategies and APIs, and of what a task runs: one row each.

To add a strategy, add a row and a module in `training/loops` with a function `run` that trains. (The loop `sync` takes
its tf.distribute.Strategy from `training/runtime/strategy.py`.) To add an API, add a row. No other code compares
their names; `tests/unit/job/test_strategies.py` counts exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainer.job.names import TaskType


@dataclass(frozen=True)
class Strategy:
    """Traits of a strategy, which trains in one task, as peers with collectives, or as a chief with servers."""

    loop: str
    """Module of `training/loops` that runs in every task except servers and the evaluator."""
    servers: tuple[TaskType, ...] = ()
    """Types of tasks that only serve graphs sent by the chief. A job has at least one of each, and no other ps."""
    restart_alone: tuple[TaskType, ...] = ()
    """Types of servers that restart alone: the other tasks continue without them."""
    one_task: bool = False
    """Whether the replicas are the devices of a single task."""
    replicas: Literal["one", "devices", "cores"] = "devices"
    """Replicas in sync: one, one per device of the computing tasks, or the cores of the TPU."""
    chooses_devices: bool = False
    """Whether a spec may choose the devices to compute on."""
    one_gpu: bool = False
    """Whether a worker can use at most one GPU."""
    all_reduces: tuple[str, ...] = ("auto",)
    """Allowed values of communication.implementation."""
    shares_variables: bool = False
    """Whether devices share variables; then no layer may update one by itself (Dropout, BatchNormalization)."""
    trains: bool = True
    """Whether the strategy trains a model in steps, with checkpoints. Otherwise the workload's compute() runs once, and
    places operations on the servers, /job:NAME."""

    @property
    def coordinated(self) -> bool:
        """Whether the chief sends graphs to servers, and computes nothing itself."""
        return bool(self.servers)

    @property
    def on_ps(self) -> bool:
        """Whether it trains variables that are on ps."""
        return "ps" in self.servers

    @property
    def collective(self) -> bool:
        """Whether the tasks are peers that train in sync, the chief included."""
        return not self.one_task and not self.servers


STRATEGIES: dict[str, Strategy] = {
    "parameter_server": Strategy(
        loop="ps.loop",
        servers=("worker", "ps"),
        restart_alone=("worker",),
        replicas="one",
        one_gpu=True,  # keras#18624: variables without aggregation fail with several replicas per ps-worker
    ),
    "multi_worker_mirrored": Strategy(
        loop="sync",
        all_reduces=("auto", "ring", "nccl"),
    ),
    "mirrored": Strategy(
        loop="sync",
        one_task=True,
        chooses_devices=True,
        all_reduces=("auto", "nccl", "hierarchical_copy", "reduction_to_one_device"),
    ),
    "central_storage": Strategy(
        loop="sync",
        one_task=True,
        chooses_devices=True,
        shares_variables=True,
    ),
    "one_device": Strategy(loop="sync", one_task=True, replicas="one", chooses_devices=True),
    "tpu": Strategy(loop="sync", one_task=True, replicas="cores"),
    "graph": Strategy(loop="graph_client", servers=("worker",), replicas="one", trains=False),
}


@dataclass(frozen=True)
class Api:
    """Traits of an API, which defines the code that makes the training steps."""

    entry: str = "model"
    """The function that a workload must have."""
    refuses: Mapping[str, str] = field(default_factory=dict)
    """Settings that the API replaces, by name, with the rule that refuses each."""
    own_file: bool = False
    """Whether the API needs the user's own workload file."""
    calls_fit: bool = False
    """Whether the workload calls fit, which is the loop, with a model that it compiled."""
    estimator: bool = False
    """Whether the entry function is called to load the workload, and returns Estimator, TrainSpec and EvalSpec."""


_IN_COMPILE = "under keras_fit the workload's model.compile sets that; remove it"
_IN_INPUT_FN = "under train_and_evaluate the workload's input_fn provides the data; remove it"
RATES = ("optimizer", "learning_rate", "learning_rates", "learning_rate_scaling")
"""Settings under `train` that an optimizer of the workload replaces."""

APIS: dict[str, Api] = {
    "loop": Api(),
    "keras_fit": Api(
        refuses={f"train.{key}": _IN_COMPILE for key in RATES},
        own_file=True,
        calls_fit=True,
    ),
    "train_and_evaluate": Api(
        entry="train_and_evaluate",
        refuses={
            "train.epochs": f"{_IN_INPUT_FN}, and give steps",
            "train.validation_split": _IN_INPUT_FN,
            "train.steps_per_epoch": f"{_IN_INPUT_FN}, and give steps",
            "dataset": _IN_INPUT_FN,
        },
        own_file=True,
        estimator=True,
    ),
}


@dataclass(frozen=True)
class Runs:
    """Traits of what the tasks of a job run: a workload in trainer's loops, or the user's program."""

    called: str = "child"
    takes_orders: bool = True
    """Whether it is started first, and then ordered when to begin, which steps to make and when to stop. So another one
    can stand by."""
    checkpoints: bool = True
    """Whether it writes trainer's checkpoints, which an evaluator scores."""
    chief_watches: bool = True
    """Whether the chief knows the progress of every child. Otherwise each supervisor watches its own, and a step of the
    chief's, or a changed file, is progress of all."""
    end_together: bool = False
    """Whether the end of one ends its peers with errors of their own, so that the first cause must be found."""


WORKLOAD = Runs()
PROGRAM = Runs(called="program", takes_orders=False, checkpoints=False, chief_watches=False, end_together=True)


def names(has: Callable[[Strategy], bool]) -> str:
    """The strategies with a trait, as a phrase: `mirrored, central_storage and one_device`."""
    *most, last = [name for name, row in STRATEGIES.items() if has(row)]
    return f"{', '.join(most)} and {last}" if most else last
