"""Evaluation of a model on the test split, outside any strategy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import keras
import numpy as np
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.model_dir import checkpoint
from trainer.model_dir.checkpoint_meta import UNTRACKED
from trainer.training.model.build_model import build_copy
from trainer.training.model.checks import can_evaluate, has_own_step, predict, require_labels
from trainer.training.model.state import given_optimizer
from trainer.training.private import keras_private
from trainer.training.runtime import created_variables, per_example
from trainer.training.runtime.user_code import calling
from trainer.training.task import TrainingTask
from trainer.workloads.types import Dataset, Model, Optimizer, Tensor, Variable

Figures = dict[str, float]
Score = Callable[..., Figures]
"""A function from finite batches, and optionally a function whether to end early, to figures by name."""


OnBatch = Callable[[int, "int | None"], object]
"""A function that takes the number of a batch that was evaluated, and how many there are, if that is known."""


def evaluate(
    job: TrainingTask, values: checkpoint.Values, *, averaged: bool = False, on_batch: OnBatch | None = None
) -> tuple[Model, dict[str, float]]:
    """A copy of the model with these values, and its metrics on the test split; see `copy_of_model`."""
    model = copy_of_model(job, values, averaged=averaged)
    return model, score(job, model, on_batch)


def copy_of_model(job: TrainingTask, values: checkpoint.Values, *, averaged: bool = False) -> Model:
    """The model with these values outside any strategy; `averaged`: they are the final ones already.

    Under parameter_server the trained variables live on the ps, and under multi_worker_mirrored a metric's
    result is a collective; a local copy needs neither.
    """
    model = build_copy(job)
    _give(job, model, None if averaged else _own_optimizer(job, model), values)
    return model


def make_score_of_values(job: TrainingTask) -> Callable[[checkpoint.Values, Dataset, Callable[[], bool]], Figures]:
    """A function that scores checkpoints, as `score_on` of a `copy_of_model` does, with one model and one graph for all
    of them: under parameter_server graphs stay for the life of the process (tensorflow_patches.keep_functions)."""
    model = build_copy(job)
    optimizer, score = _own_optimizer(job, model), make_score(job, model)
    # A metric of the user's own may have no reset_state().
    metrics = [*model.metrics, *keras_private.metrics_of_compile(model)]
    empty = [(v, v.numpy()) for metric in metrics for v in metric.variables]

    def scored(values: checkpoint.Values, batches: Dataset, ended: Callable[[], bool]) -> Figures:
        _give(job, model, optimizer, values)
        for variable, value in empty:
            variable.assign(value)
        return score(batches, ended)

    return scored


def _give(job: TrainingTask, model: Model, optimizer: Optimizer | None, values: checkpoint.Values) -> None:
    """Gives the model these values, or the averages of its weights if its optimizer keeps some."""
    for i, variable in enumerate(model.variables):
        variable.assign(values[f"model.{i:03d}"])
    for name, variable in untracked(job, model, values).items():
        variable.assign(values[name])
    if optimizer is not None and optimizer.use_ema:
        _take_averages(model, optimizer, values)


def require_copies(job: TrainingTask, values: Iterable[str]) -> None:
    """Checks, before the first step, that a copy of the model can have what a step uses, by the names of these values.

    Raises:
        UserError: it cannot.
    """
    if any(name.startswith(f"{UNTRACKED}model.") for name in values):
        untracked(job, build_copy(job), values)


def untracked(job: TrainingTask, model: Model, values: Iterable[str]) -> dict[str, Variable]:
    """A copy's variables that Keras does not list and for which there are values, by the names of these.

    Raises:
        UserError: the copy has others than the model that is trained.
    """
    of_model = created_variables.of(model)
    wanted = [name for name in values if name.startswith(f"{UNTRACKED}model.")]
    if wanted and job.models and not created_variables.alike(model, job.models[0]):
        raise UserError(
            f"workload: {job.workload.name}: model() creates other variables in each call, and a step uses one that "
            "Keras does not list: make it by self.add_weight() or at the top of the file, and import modules there"
        )
    named = {f"{UNTRACKED}model.{i:03d}": v for i, v in enumerate(of_model) if v is not None}
    return {name: named[name] for name in wanted if name in named}


def _own_optimizer(job: TrainingTask, model: Model) -> Optimizer | None:
    """A new one like that of the workload; None if the spec gives it."""
    if model.compiled:
        return keras_private.inner(model.optimizer)
    return None if job.workload.optimizer is None else given_optimizer(job, job.training)


def _take_averages(model: Model, optimizer: Optimizer, values: checkpoint.Values) -> None:
    """Gives the model the average of its weights that its optimizer keeps, as fit does at its end."""
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    for i, variable in enumerate(optimizer.variables):
        variable.assign(values[f"optimizer.{i:03d}"])
    optimizer.finalize_variable_values(model.trainable_variables)


def score(job: TrainingTask, model: Model, on_batch: OnBatch | None = None) -> dict[str, float]:
    """A model's metrics on the test split."""
    if job.workload.evaluate is not None:
        with calling(job.workload.name, "evaluate(model), which must give numbers by name"):
            return {name: float(value) for name, value in job.workload.evaluate(model).items()}
    batches = job.evaluation()
    if on_batch is None:
        return score_on(job, model, batches)
    count, number = int(batches.cardinality()), itertools.count(1)

    def took_batch() -> bool:
        on_batch(next(number), count if count > 0 else None)
        return False

    return make_score(job, model)(batches, took_batch)


def score_on(job: TrainingTask, model: Model, batches: Dataset) -> Figures:
    """A model's loss and metrics on finite batches."""
    return make_score(job, model)(batches)


def make_score(job: TrainingTask, model: Model) -> Score:
    """A function that gives a model's loss and metrics on finite batches; of those before `ended` if that becomes
    true."""
    if not model.compiled:
        return _make_score_of_functions(job, model)

    def scored(batches: Dataset, ended: Callable[[], bool] = lambda: False) -> Figures:
        if has_own_step(model) and not can_evaluate(model):
            return {}
        calls = calling(job.workload.name, "model.evaluate, which must give numbers by name")
        with calls, created_variables.drawing(model):
            figures = model.evaluate(batches, verbose=0, return_dict=True, callbacks=[Ends(ended)])
            return {name: float(value) for name, value in figures.items()}

    return scored


class Ends(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends an evaluation."""

    def __init__(self, ended: Callable[[], bool]) -> None:
        super().__init__()
        self._ended = ended

    def on_test_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.model.stop_evaluating = self._ended()


def _make_score_of_functions(job: TrainingTask, model: Model) -> Score:
    """The same for a model that was not compiled."""

    @tf.function(autograph=False)
    def sums_of(batch: Tensor) -> Tensor:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
        with created_variables.drawing(model):
            prediction = predict(job, model, x, training=False)
        losses = per_example.values("loss(y, prediction)", job.loss, y, prediction)
        metrics = [per_example.values(f"METRICS[{name!r}]", f, y, prediction) for name, f in job.metrics.items()]
        return tf.stack([tf.reduce_sum(each) for each in (per_example.weighted(losses, weights), *metrics)])

    def scored(batches: Dataset, ended: Callable[[], bool] = lambda: False) -> Figures:
        require_labels(job, batches.element_spec)
        sums, count = np.zeros(len(job.figure_names)), 0
        for batch in batches:
            sums += sums_of(batch).numpy()
            count += len(tf.nest.flatten(batch[1])[0])
            if ended():
                break
        if count == 0:
            raise UserError(f"workload: {job.workload.name}: there are no examples to evaluate on")
        return job.figures(sums / count)

    return scored
