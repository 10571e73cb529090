"""Keras' Adam with its update as one operation."""

from __future__ import annotations

import keras
import tensorflow as tf

from trainer.training.private.keras_private import adam_slots
from trainer.workloads.types import Tensor, Variable


class Adam(keras.optimizers.Adam):  # type: ignore[misc]
    """Reads and writes each value once per step, where Keras' own takes ten passes over them (decision 23).

    The formula is Keras' (keras/src/optimizers/adam.py), which is that of ResourceApplyAdam
    (tensorflow/core/kernels/training_ops.cc), rounding aside; variables, and so checkpoints, are the same. A gradient
    of some rows moves all others too, by their momentum: it becomes one of the whole table here, where Keras' own makes
    several of its size.
    """

    def update_step(self, gradient: Tensor, variable: Variable, learning_rate: Tensor) -> None:
        if self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        if isinstance(gradient, tf.IndexedSlices):
            gradient = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])
        dtype = variable.dtype
        step = tf.cast(self.iterations.value + 1, dtype)
        momentum, velocity = adam_slots(self, variable)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=momentum.value.handle,
            v=velocity.value.handle,
            beta1_power=tf.pow(tf.cast(self.beta_1, dtype), step),
            beta2_power=tf.pow(tf.cast(self.beta_2, dtype), step),
            lr=tf.cast(learning_rate, dtype),
            beta1=tf.cast(self.beta_1, dtype),
            beta2=tf.cast(self.beta_2, dtype),
            epsilon=tf.cast(self.epsilon, dtype),
            grad=tf.cast(gradient, dtype),
        )
