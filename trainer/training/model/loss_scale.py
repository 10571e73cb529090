"""float16: scales the loss, so that small gradients do not vanish, and skips batches whose gradients overflow."""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from trainer.job.errors import Exit, TrainerError
from trainer.training.private import keras_patches, tensorflow_private
from trainer.workloads.types import Optimizer, Strategy, Tensor, Variable

SMALLEST_SCALE = 1.0
MOST_SKIPS = 50
"""Consecutive skips. From the first scale, 2**15, it takes 15 to reach the smallest."""


class LossScale(keras.optimizers.LossScaleOptimizer):  # type: ignore[misc]
    """Keras' LossScaleOptimizer with one decision for all replicas, by the sum of their gradients.

    Keras' own lets each worker decide by its own gradients (keras/src/optimizers/loss_scale_optimizer.py): a worker
    whose gradients overflow skips the all-reduce in which the others wait for it. It also has no minimum scale, and
    does not count the skipped batches.
    """

    def __init__(self, inner: Optimizer, given: Optimizer | None = None, replicas: int = 1) -> None:
        """
        Args:
            given: a LossScaleOptimizer, the settings of which to take.
            replicas: those that a loss given to `scale_loss` is to be divided by.
        """
        keys = () if given is None else ("initial_scale", "dynamic_growth_steps")
        settings = {key: getattr(given, key) for key in keys}
        super().__init__(inner, **settings)
        self._replicas = replicas
        self._add_up = keras_patches.replace_gradient_sum(inner, lambda _: list)  # Gradients come summed.

    def build(self, var_list: list[Variable]) -> None:
        common = {"shape": (), "initializer": "zeros", "dtype": "int64", "aggregation": "none"}
        self.skipped = self.add_variable(name="skipped", **common)
        self.skipped_in_a_row = self.add_variable(name="skipped_in_a_row", **common)
        super().build(var_list)

    @property
    def variables(self) -> list[Variable]:
        """The inner optimizer's first. The inherited second iteration and learning rate are unused."""
        of_scale = [self.dynamic_scale, self.step_counter, self.skipped, self.skipped_in_a_row]
        return [*self.inner_optimizer.variables, *of_scale]

    def scale_loss(self, loss: Tensor) -> Tensor:
        # Another ps-worker may change the scale before the gradients arrive.
        self._used = tf.identity(self.dynamic_scale.value)
        return loss * self._used / self._replicas

    def apply(self, grads: list[Tensor], trainable_variables: list[Variable]) -> None:
        """Applies gradients, as `train_step` of a compiled model asks; `applied` has the decision then."""
        self.applied = self.apply_if_finite(list(grads), list(trainable_variables), self._used)

    def apply_if_finite(self, gradients: list[Tensor], variables: list[Variable], scale: Tensor) -> Tensor:
        """Updates the variables unless the sum of some gradient is not finite; returns whether it did.

        Args:
            scale: the scale of the loss of these gradients. Another ps-worker may have changed it since.
        """
        gradients = [g for g, _ in self._add_up(zip(gradients, variables, strict=True))]
        finite = self.check_finite(gradients)
        if tensorflow_private.replicas_decide_by_themselves():
            return self._decide(finite, lambda: self._update(gradients, variables, scale))

        # A condition around updates must be outside the replica context: replicas cannot merge within its branches.
        def together(strategy: Strategy, finite: Tensor, *update: object) -> Tensor:
            first = strategy.experimental_local_results(finite)[0]
            return self._decide(first, lambda: strategy.extended.call_for_each_replica(self._update, args=update))

        return tf.distribute.get_replica_context().merge_call(together, args=(finite, gradients, variables, scale))

    def _decide(self, finite: Tensor, update: Callable[[], object]) -> Tensor:
        def applied() -> Tensor:
            update()
            return tf.constant(True)

        result = tf.cond(finite, applied, lambda: tf.constant(False))
        scale, steps, in_a_row = self.dynamic_scale.value, self.step_counter.value + 1, self.skipped_in_a_row.value + 1
        grows = finite & (steps >= self.dynamic_growth_steps)
        smaller = tf.maximum(scale / 2.0, SMALLEST_SCALE)
        self.dynamic_scale.assign(tf.where(finite, tf.where(grows, scale * 2.0, scale), smaller))
        self.step_counter.assign(tf.where(grows | ~finite, tf.zeros_like(steps), steps))
        self.skipped_in_a_row.assign(tf.where(finite, tf.zeros_like(in_a_row), in_a_row))
        self.skipped.value.assign_add(tf.cast(~finite, tf.int64))  # Atomic, also on a ps.
        return result

    def _update(self, gradients: list[Tensor], variables: list[Variable], scale: Tensor) -> None:
        unscaled = [None if g is None else keras.ops.divide(g, scale) for g in gradients]
        self.inner_optimizer.apply(unscaled, variables)


def skipped(optimizer: Optimizer) -> int | None:
    """Batches read but not trained on since the start of the job; None without float16."""
    return int(optimizer.skipped.numpy()) if isinstance(optimizer, LossScale) else None


def raise_if_stuck(optimizer: Optimizer, step: int) -> None:
    """Checks the number of overflows after some more steps.

    Raises:
        TrainerError: Exit.DIVERGED, if only overflows follow this step.
    """
    if not isinstance(optimizer, LossScale):
        return
    in_a_row, scale = int(optimizer.skipped_in_a_row.numpy()), float(optimizer.dynamic_scale.numpy())
    if in_a_row >= MOST_SKIPS:
        raise TrainerError(
            f"train.mixed_precision: float16: the gradients of {in_a_row} batches in a row after step {step} were not "
            f"finite, at last with a loss scale of {scale:g}; set bfloat16, lower train.learning_rate or look at the "
            "data",
            Exit.DIVERGED,
        )
