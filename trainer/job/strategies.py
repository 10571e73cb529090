"""What is true of each strategy and each API: one row each.

A new strategy is a row here and a module in `training/loops` whose `run` trains it. A new API that trains by itself is
a row and a module, too. Nothing else asks for their names (`tests/unit/job/test_strategies.py` counts).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainer.job.names import TaskType


@dataclass(frozen=True)
class Strategy:
    """How tasks train together. Without servers and not in one task, they are peers that meet in collectives."""

    loop: str
    """Module of `training/loops` that runs in every task that is no server."""
    servers: tuple[TaskType, ...] = ()
    """Types of tasks that only serve graphs, which the chief sends. Each must be there; with ps, it has ps."""
    restart_alone: tuple[TaskType, ...] = ()
    """Types of servers that may die without a restart of the others."""
    one_task: bool = False
    """Replicas are the devices of one task."""
    replicas: Literal["one", "devices", "cores"] = "devices"
    """In sync: one, one for each device of the tasks that compute, or the cores of the TPU."""
    chooses_devices: bool = False
    """A spec may name the devices that compute."""
    one_gpu: bool = False
    """A worker computes on at most one GPU."""
    all_reduces: tuple[str, ...] = ("auto",)
    """Implementations that a spec may name."""
    shares_variables: bool = False
    """Devices share variables, which no layer may update by itself then (Dropout, BatchNormalization)."""
    fits_with_tf_keras: bool = False
    """The fit of Keras 3 fails, and that of tf_keras works."""
    trains: bool = True
    """It trains a model, in steps, with checkpoints. Else a workload's compute() runs once, on servers /job:NAME."""

    @property
    def coordinated(self) -> bool:
        """The chief sends graphs to servers, and computes nothing itself."""
        return bool(self.servers)

    @property
    def collective(self) -> bool:
        """Tasks are peers that train in sync, the chief too."""
        return not self.one_task and not self.servers


STRATEGIES: dict[str, Strategy] = {
    "parameter_server": Strategy(
        loop="parameter_server",
        servers=("worker", "ps"),
        restart_alone=("worker",),
        replicas="one",
        one_gpu=True,  # keras#18624: variables without aggregation fail with several replicas per ps-worker
        fits_with_tf_keras=True,  # keras#20585
    ),
    "multi_worker_mirrored": Strategy(
        loop="sync",
        all_reduces=("auto", "ring", "nccl"),
        fits_with_tf_keras=True,  # keras#18624
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
        fits_with_tf_keras=True,  # AggregatingVariable
    ),
    "one_device": Strategy(loop="sync", one_task=True, replicas="one", chooses_devices=True),
    "tpu": Strategy(loop="sync", one_task=True, replicas="cores"),
    "graph": Strategy(loop="graph_client", servers=("worker",), replicas="one", trains=False),
}


@dataclass(frozen=True)
class Api:
    """Who trains."""

    entry: str = "model"
    """The function that a workload must have."""
    loop: str | None = None
    """Module of `training/loops` in place of the strategy's."""
    refuses: Mapping[str, str] = field(default_factory=dict)
    """Settings that have another home under this API, with the rule that says so."""
    own_file: bool = False
    """It needs a workload of the user's own."""
    uses_fit: bool = False
    """Keras's fit makes the steps, of a model that the workload compiled; it stops and resumes after an epoch only."""
    estimator: bool = False
    """The entry is called to load the workload, and gives Estimator, TrainSpec and EvalSpec, with exporters."""


_IN_COMPILE = "under keras_fit that is said in the workload's model.compile; remove it"
_IN_INPUT_FN = "under train_and_evaluate the workload's input_fn brings the data; remove it"
_COMPILED = ("optimizer", "learning_rate", "learning_rates", "learning_rate_scaling", "steps_per_call")

APIS: dict[str, Api] = {
    "loop": Api(),
    "keras_fit": Api(
        loop="keras_fit",
        refuses={f"train.{key}": _IN_COMPILE for key in _COMPILED},
        own_file=True,
        uses_fit=True,
    ),
    "train_and_evaluate": Api(
        entry="train_and_evaluate",
        refuses={"train.epochs": f"{_IN_INPUT_FN}, and give steps", "dataset": _IN_INPUT_FN},
        own_file=True,
        estimator=True,
    ),
}


def names(has: Callable[[Strategy], bool]) -> str:
    """The strategies of which that is true, as a phrase: `mirrored, central_storage and one_device`."""
    *most, last = [name for name, row in STRATEGIES.items() if has(row)]
    return f"{', '.join(most)} and {last}" if most else last
