"""The training step of a compiled Keras model: its `train_step`, with the optimizers, losses and metrics of compile.

Four things differ from Keras' own fit. `train_step` sees one replica, whose batch is all there is, and its gradients
are averaged over the replicas: in Keras they are added up, and each loss has to know by how much to divide (decision
41). They are averaged first, so that clipping sees those of the whole batch. Optimizers are built before the first
step, on the variables that a trace shows. And the values of metrics are no variables of the cluster: each step begins
with those of empty metrics, and gives what it has added to them, which adds up over steps and replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.exchange import whole_batch
from trainer.training.model import additive, compile_rules
from trainer.training.model.checks import has_own_step
from trainer.training.model.loss_scale import LossScale
from trainer.training.model.step_trace import Empty, TrainStep, flat, trace
from trainer.training.private import keras_patches, keras_private, tensorflow_patches
from trainer.training.runtime.user_code import calling
from trainer.training.task import TrainingTask
from trainer.workloads.types import Metric, Model, Optimizer, Strategy, Tensor, Variable


@dataclass(frozen=True)
class Compiled:
    """A compiled model that can be trained."""

    optimizers: list[tuple[Optimizer, list[Variable]]]
    """The optimizers that `train_step` uses, in the order of their last use, with their variables; not yet built."""
    step: CompiledStep
    warnings: list[str]


def prepare(strategy: Strategy, job: TrainingTask, model: Model, batch: Tensor) -> Compiled:
    """Creates the variables of losses and metrics, within the strategy's scope, and finds what `train_step` uses.

    Args:
        batch: tf.TensorSpec of each part of a replica's batch.

    Raises:
        UserError: a step is such that it cannot be trained.
    """
    name = job.workload.name
    with calling(name, "model.compile"):
        keras_private.build_compiled(model, batch)
    whole_batch.of_losses(name, model, job.replicas)
    metrics = _leaves(model)
    variables = [v for metric in metrics for v in metric.variables]
    with keras.StatelessScope() as scope:
        model.reset_metrics()
    kept_by_reset = {id(v) for v in variables if scope.get_current_value(v) is None}
    empty = [np.asarray(_first_value(v) if id(v) in kept_by_reset else scope.get_current_value(v)) for v in variables]
    if not has_own_step(model):
        _require_numbers(name, model, list(zip(variables, empty, strict=True)))
    keeping = [metric for metric in metrics if any(id(v) in kept_by_reset for v in metric.variables)]
    custom = [metric for metric in metrics if metric in keeping or not additive.is_kerass(metric)]
    if not (custom or has_own_step(model) or model.loss is None):
        optimizers = [(model.optimizer, model.trainable_variables)]
        return Compiled(optimizers, CompiledStep(model, model.optimizer, variables, empty, metrics), [])
    with calling(name, "model.train_step"):
        traced = trace(strategy, model, batch, variables, empty, custom)
    compile_rules.require_trainable(job, model, traced)
    by_id = {id(v): value for v, value in zip(variables, empty, strict=True)}
    changed = {id(variables[i]) for i in traced.changed}
    reasons = {metric: _why_left_out(metric, traced, by_id, changed & kept_by_reset) for metric in custom}
    left_out = [metric for metric, why in reasons.items() if why]
    warnings = [
        f"warning: workload: {name}: metric {metric.name}: {why}, so it may not add up over steps and replicas; it is "
        "computed at the end only, on the test split"
        for metric, why in reasons.items()
        if why
    ]
    kept = [m for m in metrics if m not in left_out and any(id(v) in changed for v in m.variables)]
    optimizers = [(optimizer, _built_on(model, optimizer, updated)) for optimizer, updated in traced.optimizers]
    step = CompiledStep(model, optimizers[-1][0], variables, empty, kept, sorted(traced.returned), left_out)
    return Compiled(optimizers, step, warnings)


def _why_left_out(metric: Metric, traced: TrainStep, empty: dict[int, Empty], never_reset: set[int]) -> str | None:
    """Why a metric is not known to add up; None if it does, or is not updated.

    Args:
        empty: first values, by id of a variable.
        never_reset: ids of variables that are updated, but not reset.
    """
    if any(id(v) in never_reset for v in metric.variables):
        return "reset_state leaves a variable as it is that update_state changes"
    arguments = traced.arguments.get(id(metric))
    if arguments is None or additive.adds_up(metric, [empty[id(v)] for v in metric.variables], *arguments):
        return None
    return "what update_state adds to it depends on its earlier values, or cannot be tried with random arguments"


def _first_value(variable: Variable) -> Tensor:
    """The value with which each replica has begun."""
    return tf.distribute.get_strategy().experimental_local_results(variable.value)[0]


def _require_numbers(workload: str, model: Model, values: list[tuple[Variable, Empty]]) -> None:
    with keras.StatelessScope(values):
        results = model.get_metrics_result()
    for metric, value in results.items():
        size = len(value) if isinstance(value, dict) else np.size(value)
        if isinstance(value, dict) or size != 1:
            raise UserError(
                f"workload: {workload}: the metric {metric!r} of compile gives {size} values, and must give "
                "one; give it average='macro', or leave it out"
            )


def _built_on(model: Model, optimizer: Optimizer, updated: list[Variable]) -> list[Variable]:
    """What an optimizer is built on: that of compile as by fit, on all variables that are trainable."""
    if optimizer is not model.optimizer:
        return updated
    known = {id(v) for v in model.trainable_variables}
    return [*model.trainable_variables, *(v for v in updated if id(v) not in known)]


def _leaves(model: Model) -> list[Metric]:
    """All metrics of a model, those of compile among them."""
    return [leaf for metric in model.metrics for leaf in getattr(metric, "metrics", [metric])]


@dataclass(frozen=True)
class CompiledStep:
    """The step of a compiled model: its `train_step`, and what that adds to the metrics, as one vector."""

    model: Model
    optimizer: Optimizer
    """The last optimizer that a step uses."""
    variables: Sequence[Variable]
    """The variables of all metrics."""
    empty: Sequence[Empty]
    """The values of these variables before the first step."""
    metrics: Sequence[Metric]
    """The metrics whose values add up over replicas and steps."""
    returned: Sequence[str] | None = None
    """The names of what `train_step` returns; None: all metrics. Values that are no metrics are averaged."""
    left_out: Sequence[Metric] = ()

    @property
    def width(self) -> int:
        return sum(value.size for _, value in self._counted) + len(self._others)

    def run(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Trains on a replica's batch: whether it was applied, its loss, and the vector."""
        with keras_patches.hold(self.variables, self.empty) as held, tensorflow_patches.as_one_replica():
            logs = {name: tf.cast(value, tf.float32) for name, value in flat(self.model.train_step(batch)).items()}
        applied = self.optimizer.applied if isinstance(self.optimizer, LossScale) else tf.constant(True)
        added = [tf.cast(held.get_current_value(v), tf.float32) - tf.cast(e, tf.float32) for v, e in self._counted]
        added += [logs[name] for name in self._others]
        return applied, _loss(logs), tf.concat([tf.zeros([0]), *(tf.reshape(each, [-1]) for each in added)], 0)

    def by_name(self, sums: npt.NDArray[np.floating], count: float) -> dict[str, float]:
        """The figures that the sum of `count` vectors stands for."""
        metrics, others = np.split(sums, [len(sums) - len(self._others)])
        results = self._results(tf.constant(metrics, tf.float64))
        return {
            **{name: float(value) for name, value in results.items()},
            **dict(zip(self._others, (others / count).tolist(), strict=True)),
        }

    @cached_property
    def _counted(self) -> list[tuple[Variable, Empty]]:
        of_metrics = {id(v) for metric in self.metrics for v in metric.variables}
        return [(v, e) for v, e in zip(self.variables, self.empty, strict=True) if id(v) in of_metrics]

    @cached_property
    def _names(self) -> list[str]:
        """The names of the results of `metrics`."""
        known = self._results_without([])
        unlike = self._results_without([m for m in _leaves(self.model) if not any(m is kept for kept in self.metrics)])
        return [name for name in known if name in unlike and (self.returned is None or name in self.returned)]

    @cached_property
    def _others(self) -> list[str]:
        known = self._results_without(self.left_out)
        withheld = [name for name in self._results_without([]) if name not in known]
        return [name for name in self.returned or () if name not in (*self._names, *withheld)]

    def _results_without(self, metrics: Sequence[Metric]) -> list[str]:
        """Names of the model's results that are not of these metrics."""
        for metric in metrics:
            metric.result = lambda: None
        try:
            with keras.StatelessScope(list(zip(self.variables, self.empty, strict=True))):
                results = self.model.get_metrics_result()
        finally:
            for metric in metrics:
                del metric.result
        return [name for name, value in results.items() if value is not None]

    @cached_property
    def _results(self) -> Callable[[Tensor], dict[str, Tensor]]:
        sizes = [value.size for _, value in self._counted]
        if not sizes:
            return lambda _: {}

        @tf.function(autograph=False)
        def results(added: Tensor) -> dict[str, Tensor]:
            parts = tf.split(added, sizes)
            # All of them: to read a metric's variable is a collective.
            values = {id(v): tf.constant(e) for v, e in zip(self.variables, self.empty, strict=True)}
            for (v, e), part in zip(self._counted, parts, strict=True):
                # Sums of numbers may be divided by the replicas of a task, and multiplied again.
                value = part if tf.as_dtype(v.dtype).is_floating else tf.round(part)
                values[id(v)] = tf.cast(e, v.dtype) + tf.cast(tf.reshape(value, v.shape), v.dtype)
            with keras.StatelessScope([(v, values[id(v)]) for v in self.variables]):
                results_by_name = self.model.get_metrics_result()
                return {name: tf.convert_to_tensor(results_by_name[name]) for name in self._names}

        made: Callable[[Tensor], dict[str, Tensor]] = results
        return made


def _loss(returned: dict[str, Tensor]) -> Tensor:
    """What a step minimizes, as far as its values show: its loss, else the sum of its losses, else of all values."""
    losses = [value for name, value in returned.items() if "loss" in name] or list(returned.values())
    wanted = [returned["loss"]] if "loss" in returned else losses
    return tf.add_n([tf.reshape(value, []) for value in wanted])
