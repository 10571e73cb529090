"""A workload is one Python file. This is the contract, for built-in workloads and for a user's own:

model() -> keras.Model          required: a plain Keras 3 model, built (it has an Input); for api keras_fit compiled too
DATASET = "mnist"               the dataset if the spec names none; or a data function:
data(shard) -> x, (x, y) or (x, y, sample_weight)
                                arrays of the whole split, or tuples or dicts of them: trainer shards, shuffles,
                                batches and resumes; or
            -> tf.data.Dataset  of single examples of these forms, this shard's only: trainer repeats, batches
                                and skips; or
            -> trainer.batched(dataset)
                                of a replica's batches, this shard's only: trainer repeats and skips; or
            -> trainer.files(patterns, parse)
                                of records in files, the whole split: trainer indexes, shards, shuffles,
                                parses, batches and resumes
validation(shard)               optional: as data(), to validate with
loss(y, prediction)             optional: one value per example; default cross-entropy from logits
METRICS = {"accuracy": f}       optional: f(y, prediction) gives one value per example, as loss does:
                                shape [batch], or the shape of y, of the prediction, or of the prediction without its
                                last axis, which is averaged over all axes but the first; others are refused
optimizer(steps, replicas)      optional: a Keras optimizer, for a model that is not compiled; for all steps of the job
evaluate(model) -> dict         optional: final figures by name; default the mean loss and METRICS of the test split
callbacks() -> list             optional, not beside fit(): Keras callbacks. They run on the chief, with a copy of
                                the model; what they decide holds on all tasks. callbacks(model_dir) gets that folder
fit(model, run)                 optional, only for api keras_fit: calls model.fit; see `fit.py`
SETTINGS = {"units": 64}        optional: literal values, which `settings` of a spec changes before anything is called

Under api train_and_evaluate it is instead

train_and_evaluate() -> (Estimator, TrainSpec, EvalSpec)        required; see `estimator.py`

Under the strategy graph it is instead

compute(cluster) -> dict        required: places work on the servers; see `cluster.py`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trainer.job.errors import UserError
from trainer.job.messages import nearest
from trainer.job.spec import JobSpec
from trainer.job.strategies import names
from trainer.workloads.types import Model, Optimizer, PerExample, Tensor

if TYPE_CHECKING:
    from trainer.workloads.cluster import Cluster
    from trainer.workloads.estimator import EvalSpec, TrainSpec
    from trainer.workloads.fit import Fit

MODELS = ("mnist", "digits")
GRAPHS = ("sum", "mean", "ensemble", "matmul", "matpow", "remote_gpu")
"""Built-in workloads: for training, and for the strategy graph."""
CONTRACT = "see `trainer/workloads/workload.py` for the contract of a workload file"
NO_COMMAND_LINE = (
    "a workload is imported and has no command line; read SETTINGS, which `settings` in the spec replaces, in place of "
    "arguments"
)
SHARD = 'data(shard) gets a shard; shard.split is "train", "validation" or "test"'


@dataclass(frozen=True)
class Shard:
    """The requested part of the data; for splits "test" and "validation" the whole split."""

    split: Literal["train", "validation", "test"]
    index: int | Tensor = 0
    """Below `count`. Under parameter_server a scalar tensor on each worker: for Dataset.shard, not for `if`."""
    count: int = 1
    seed: int = 0
    """`train.seed`, the same on every task."""

    def __eq__(self, other: object) -> bool:
        # A comparison with the name of a split would be false, and data("train") give another split.
        if isinstance(other, str):
            raise TypeError(f"a shard is compared with {other!r}; {SHARD}")
        return NotImplemented if not isinstance(other, Shard) else astuple(self) == astuple(other)


@dataclass(frozen=True)
class Workload:
    """A loaded workload; absent parts are None."""

    name: str
    model: Callable[[], Model]
    data: Callable[[Shard], object] | None = None
    validation: Callable[[Shard], object] | None = None
    dataset: str | None = None
    loss: PerExample | None = None
    metrics: dict[str, PerExample] | None = field(default=None)
    optimizer: Callable[[int, int], Optimizer] | None = None
    evaluate: Callable[[Model], dict[str, float]] | None = None
    fit: Callable[[Model, Fit], None] | None = None
    callbacks: Callable[..., object] | None = None
    """Takes nothing, or model_dir."""
    train_spec: TrainSpec | None = None
    eval_spec: EvalSpec | None = None
    """Both only under api train_and_evaluate."""
    sha256: str | None = None
    """Value of `digest` when it was loaded."""


@dataclass(frozen=True)
class Graph:
    """A loaded workload of the strategy graph."""

    name: str
    compute: Callable[[Cluster], object]


def entry(spec: JobSpec) -> str:
    """The function that a workload must have."""
    return spec.api_traits.entry if spec.traits.trains else "compute"


def file_of(spec: JobSpec) -> Path:
    name, trains = spec.workload, spec.traits.trains
    if name.endswith(".py"):
        return Path(name)
    if spec.api_traits.own_file:
        raise UserError(f"workload: {name!r}: {spec.api} needs a file of your own; {CONTRACT}")
    known, others = (MODELS, GRAPHS) if trains else (GRAPHS, MODELS)
    if name in others:
        graph = names(lambda row: not row.trains)
        what = f"is for strategy {graph}; {spec.strategy} trains"
        if not trains:
            what = f"trains a model; strategy {graph} runs"
        raise UserError(f"workload: {name!r}: {what} {', '.join(known)}, or a path that ends in .py")
    if name not in known:
        hint = f"{nearest(name, known)}; known: {', '.join(known)}"
        raise UserError(f"workload: {name!r}: not known{hint}; or a path that ends in .py")
    return Path(__file__).parent / ("" if trains else "graphs") / f"{name}.py"
