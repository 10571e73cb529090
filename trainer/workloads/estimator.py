"""The Estimator's contract without the Estimator, which TensorFlow removed: for `api: train_and_evaluate`.

A workload's train_and_evaluate() returns the three arguments of tf.estimator.train_and_evaluate:

    return LinearRegressor(["x"]), TrainSpec(input_fn, max_steps=200), EvalSpec(input_fn)

Two differences: the optimizer is the spec's (`train.optimizer`), and a model_fn is called with symbolic inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import keras

from trainer.job.errors import UserError
from trainer.workloads.types import Dataset, Model, PerExample, Tensor


@dataclass(frozen=True)
class Context:
    """The task that requests data, as in tf.distribute.InputContext, and the batch size of one replica."""

    num_input_pipelines: int
    input_pipeline_id: int | Tensor
    """Index of the task; under parameter_server a scalar tensor."""
    num_replicas_in_sync: int
    batch_size: int

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Like InputContext's method, for an input_fn that was written for it."""
        return global_batch_size // self.num_replicas_in_sync


InputFn = Callable[[Context], Dataset]
"""Returns a tf.data.Dataset of (features, labels) in batches of one replica; called once on each worker."""


@dataclass(frozen=True)
class Estimator:
    """Model, loss and metrics. `model` is called again for each copy that is evaluated."""

    model: Callable[[], Model]
    loss: PerExample | None = None
    """loss(labels, predictions): one value per example; default: cross-entropy from logits."""
    metrics: Mapping[str, PerExample] | None = None


@dataclass(frozen=True)
class ModelSpec:
    """Return value of a model_fn: symbolic tensors, the loss and each metric with one value per example."""

    predictions: Tensor
    loss: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)


class Hook:
    """Hooks called on every task that trains; under parameter_server on the chief."""

    def begin(self) -> None:
        """Before the first step of this run."""

    def after_run(self, step: int, figures: Mapping[str, float]) -> None:
        """Called after each graph call (one or more steps), with this task's loss and metrics."""

    def end(self, step: int) -> None:
        """Called after the last step, also if the job is stopped."""


@dataclass(frozen=True)
class TrainSpec:
    input_fn: InputFn
    max_steps: int | None = None
    """Limits of the whole job; `train.steps` in the job spec takes precedence."""
    hooks: Sequence[Hook] = ()


@dataclass(frozen=True)
class EvalSpec:
    input_fn: InputFn
    steps: int | None = 100
    """Number of batches to evaluate; None: all."""
    throttle_secs: float = 600.0
    """Minimum seconds between two evaluations by the evaluator; the last checkpoint is always evaluated."""
    exporters: Sequence[Exporter] = ()


@dataclass(frozen=True)
class Exporter:
    """Writes `exporters/NAME/model.keras` for an evaluated model if `wanted` returns true."""

    name: str

    def wanted(self, figures: Mapping[str, float], best: Mapping[str, float] | None, last: bool) -> bool:
        """Whether to export. `best` has the metrics of the last export, None before the first."""
        return True

    def export(self, model: Model, folder: Path) -> None:
        model.save(folder / "model.keras")


class LatestExporter(Exporter):
    """Exports every evaluated model, replacing the previous one."""


class FinalExporter(Exporter):
    """Exports only the last model."""

    def wanted(self, figures: Mapping[str, float], best: Mapping[str, float] | None, last: bool) -> bool:
        return last


class BestExporter(Exporter):
    """Exports the model with the smallest loss; a NaN is never the smallest."""

    def wanted(self, figures: Mapping[str, float], best: Mapping[str, float] | None, last: bool) -> bool:
        return figures["loss"] < (best or {}).get("loss", math.inf)


def from_model_fn(
    model_fn: Callable[[Tensor, Tensor], ModelSpec], features: Tensor, labels: Tensor, metrics: Sequence[str] = ()
) -> Estimator:
    """Builds an Estimator from a model_fn(features, labels) written with Keras layers and keras.ops.

    It is called with these symbolic inputs, as an Estimator called it to build a graph, once for each copy of the
    model: for training, and for each evaluation. There is no `mode`: layers get `training` from Keras. Loss and metrics
    may use labels and predictions (which may be a dict).

    Args:
        features, labels: keras.Input, or a dict of them by name.
        metrics: names of the metrics that it returns.

    Raises:
        UserError: raised by the model's construction, if loss or metrics cannot be computed.
    """
    graph: list[Model] = []

    def model() -> Model:
        spec = model_fn(features, labels)
        if missing := sorted(set(metrics) ^ set(spec.metrics)):
            raise UserError(f"workload: model_fn: metrics {', '.join(missing)}: from_model_fn must name those it gives")
        try:
            graph[:] = [keras.Function([labels, spec.predictions], {"loss": spec.loss, **spec.metrics})]
        except ValueError as error:  # "Output with path ... is not connected to `inputs`"
            raise UserError(
                "workload: model_fn: loss and metrics may use labels and predictions only; put what else they need, "
                f"such as logits, into the predictions: {' '.join(str(error).split())[:120]}"
            ) from None
        return keras.Model(features, spec.predictions)

    def figure(name: str) -> PerExample:
        return lambda y, predictions: graph[0]([y, predictions])[name]

    return Estimator(model, figure("loss"), {name: figure(name) for name in metrics})


class LinearRegressor(Estimator):
    """A weighted sum of named features and a bias, with squared loss, as tf.estimator.LinearRegressor."""

    def __init__(self, features: Sequence[str]) -> None:
        def model() -> Model:
            inputs = {name: keras.Input((1,), name=name) for name in features}
            columns = list(inputs.values())
            joined = columns[0] if len(columns) == 1 else keras.layers.Concatenate()(columns)
            return keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="zeros")(joined))

        metrics = {"label/mean": lambda y, _: _column(y), "prediction/mean": lambda _, p: _column(p)}
        super().__init__(model, lambda y, p: keras.ops.square(_column(p) - _column(y)), metrics)


def _column(values: Tensor) -> Tensor:
    return keras.ops.cast(keras.ops.reshape(values, (-1,)), "float32")
