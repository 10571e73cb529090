"""The training step of one replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.training.exchange import gradients
from trainer.training.model.checks import predict, require_labels
from trainer.training.model.loss_scale import LossScale
from trainer.training.model.state import TrainState
from trainer.training.runtime import created_variables, per_example
from trainer.training.runtime.user_code import calling
from trainer.training.task import TrainingTask
from trainer.workloads.types import Strategy, Tensor

Sums = npt.NDArray[np.floating]
Run = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Step:
    """How a replica trains on a batch, and what the figures of its steps mean."""

    run: Run
    """Trains on a batch; gives whether it was applied, its loss, and a vector that adds up over steps and replicas."""
    width: int
    """The length of that vector."""
    figures: Callable[[Sums, float], dict[str, float]]
    """Returns figures by name, from the sum of the vectors of so many steps of replicas."""


def make_step(strategy: Strategy, job: TrainingTask, state: TrainState, batch: Tensor) -> Step:
    """The step of a job, to be made within the strategy's scope.

    Only float16 may skip a step, see `LossScale`.

    Args:
        batch: tf.TensorSpec of each part of a replica's batch.
    """
    if (compiled := state.compiled_step) is not None:
        train_step = _drawing(state, calling(job.workload.name, "model.train_step")(compiled.run))
        run = tf.function(train_step, jit_compile=True, autograph=False) if state.model.jit_compile else train_step
        return Step(run, compiled.width, compiled.by_name)
    require_labels(job, batch)
    run = _drawing(state, _make_step_of_functions(job, state))
    return Step(run, len(job.figure_names), lambda sums, count: job.figures(sums / count))


def _drawing(state: TrainState, run: Run) -> Run:
    """A step that draws random numbers without a seed from the model's own generator."""

    @tf.autograph.experimental.do_not_convert
    def draw(batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with created_variables.drawing(state.model):
            return run(batch)

    drawing: Run = draw
    return drawing


def _make_step_of_functions(job: TrainingTask, state: TrainState) -> Run:
    """The step of a workload with a loss and METRICS as functions; the vector is [loss, *metrics].

    Gradients are of sum(loss) / global_batch, so that their sum over replicas is the mean over the global batch. As in
    Keras, sample weights multiply the losses, not what these are divided by, nor METRICS.
    As in Keras' own fit, no AutoGraph: a loss or metric that branches on a tensor uses tf.cond or tf.where.
    """
    model, optimizer = state.model, state.optimizer
    replicas = float(job.replicas)

    @tf.autograph.experimental.do_not_convert
    def step(batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            prediction = predict(job, model, x, training=True)
            values = per_example.values("loss(y, prediction)", job.loss, y, prediction)
            total = tf.reduce_sum(per_example.weighted(values, weights)) / float(job.global_batch)
            if model.losses:
                total += tf.add_n([tf.cast(each, tf.float32) for each in model.losses]) / replicas
            goal = total * replicas if gradients.are_local() else total
            scale = tf.identity(optimizer.dynamic_scale.value) if isinstance(optimizer, LossScale) else None
            scaled = goal if scale is None else goal * scale
        slopes = tape.gradient(scaled, model.trainable_variables)
        if scale is None:
            optimizer.apply(slopes, model.trainable_variables)
            applied = tf.constant(True)
        else:
            applied = optimizer.apply_if_finite(slopes, model.trainable_variables, scale)
        figures = [per_example.values(f"METRICS[{name!r}]", f, y, prediction) for name, f in job.metrics.items()]
        loss = total * replicas
        return applied, loss, tf.stack([loss, *map(tf.reduce_mean, figures)])

    made: Run = step
    return made
