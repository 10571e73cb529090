"""The training step of one replica."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from trainer.training import per_example
from trainer.training.loss_scale import LossScale
from trainer.training.model import predict
from trainer.training.state import TrainState
from trainer.training.task import TrainingTask
from trainer.workloads.types import Tensor

Step = Callable[[tuple[Tensor, Tensor]], tuple[Tensor, Tensor]]


def make_step(job: TrainingTask, state: TrainState) -> Step:
    """Returns a replica's step, which maps an (x, y) batch to whether it was applied and the means [loss, *metrics].

    Only float16 may skip a step, see `LossScale`.
    Gradients are of sum(loss) / global_batch, so that their sum over replicas is the mean over the global batch.
    As in Keras' own fit, no AutoGraph: a loss or metric that branches on a tensor uses tf.cond or tf.where.
    """
    model, optimizer = state.model, state.optimizer
    replicas = float(job.replicas)

    @tf.autograph.experimental.do_not_convert
    def step(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, y = batch
        with tf.GradientTape() as tape:
            prediction = predict(job, model, x, training=True)
            total = tf.reduce_sum(per_example.values("loss(y, prediction)", job.loss, y, prediction))
            total /= float(job.global_batch)
            if model.losses:
                total += tf.add_n([tf.cast(each, tf.float32) for each in model.losses]) / replicas
            scale = tf.identity(optimizer.dynamic_scale.value) if isinstance(optimizer, LossScale) else None
            scaled = total if scale is None else total * scale
        slopes = tape.gradient(scaled, model.trainable_variables)
        if scale is None:
            optimizer.apply(slopes, model.trainable_variables)
            applied = tf.constant(True)
        else:
            applied = optimizer.apply_if_finite(slopes, model.trainable_variables, scale)
        figures = [per_example.values(f"METRICS[{name!r}]", f, y, prediction) for name, f in job.metrics.items()]
        return applied, tf.stack([total * replicas, *map(tf.reduce_mean, figures)])

    made: Step = step
    return made
