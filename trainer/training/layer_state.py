"""What layers update by themselves, such as the moving statistics of BatchNormalization, kept equal on all replicas."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from trainer.training.keras_patches import created_as_not_trainable
from trainer.workloads.types import Model, Strategy, Tensor, Variable


def updated_by_layers(model: Model) -> list[Variable]:
    """Floating-point variables that were created as not trainable, once each.

    A frozen weight is none of them: it was created to be trained (keras/src/layers/layer.py, `trainable`). Random
    seeds are whole numbers, and each replica has its own.
    """
    found = created_as_not_trainable(model)
    return list({id(v): v for v in found if tf.as_dtype(v.dtype).is_floating}.values())


def make_average(strategy: Strategy, model: Model) -> Callable[[], None]:
    """A function that replaces each of these variables by its mean over all replicas.

    They have no aggregation in Keras 3 and drift apart (batch_normalization.py); a checkpoint must hold what all go on
    with, or a resumed run would differ. Means are taken in float64: those of equal float32 values are these values, so
    that what no layer changes, as the mean of a Normalization layer, stays as it is.
    """
    variables, replicas = updated_by_layers(model), strategy.num_replicas_in_sync
    if not variables or replicas == 1:
        return lambda: None

    def total() -> Tensor:
        flat = [tf.reshape(tf.cast(tf.convert_to_tensor(v.value), tf.float64), [-1]) for v in variables]
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.concat(flat, 0))

    @tf.function(autograph=False)
    def graph() -> None:
        means = strategy.experimental_local_results(strategy.run(total))[0] / float(replicas)
        parts = tf.split(means, [math.prod(v.shape) for v in variables])
        for v, part in zip(variables, parts, strict=True):
            v.assign(tf.reshape(tf.cast(part, v.dtype), v.shape))

    def average() -> None:
        graph()

    return average
