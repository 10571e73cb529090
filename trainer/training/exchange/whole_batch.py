"""Losses and gradients of the batch of all replicas, for a model's `train_step`, which sees that of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.exchange import gradients
from trainer.training.private import keras_patches, keras_private, tensorflow_patches, tensorflow_private
from trainer.workloads.types import Model, Optimizer, Strategy, Tensor, Variable


def of_losses(name: str, model: Model, replicas: int) -> None:
    """Multiplies losses with reduction "sum" by the number of replicas, because gradients are averaged over them.

    Such losses are those of compile and of the model's attributes, also in lists and dicts.

    Raises:
        UserError: a loss cannot be divided among replicas.
    """
    if replicas == 1:
        return

    def of_whole_batch(loss: keras.losses.Loss) -> keras.losses.Loss:
        if (reduction := getattr(loss, "reduction", "mean")) in (None, "none", "mean_with_sample_weight"):
            raise UserError(
                f"workload: {name}: the loss {loss.name} has reduction {reduction!r}, which {replicas} replicas cannot "
                "compute of the whole batch; use 'sum_over_batch_size', or one replica"
            )
        return _times(loss, replicas) if reduction == "sum" else loss

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: replaced(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [replaced(each) for each in value]
        return of_whole_batch(value) if isinstance(value, keras.losses.Loss) else value

    keras_patches.replace_losses(model, of_whole_batch)
    for attribute, value in list(vars(model).items()):
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        if any(isinstance(each, keras.losses.Loss) for each in parts):
            model.__dict__[attribute] = replaced(value)


def _times(loss: keras.losses.Loss, factor: int) -> keras.losses.Loss:
    """A copy of the loss, multiplied by the factor. Other copies of the model may use the object itself."""
    copied: Any = object.__new__(type(loss))  # copy.copy would save it to a file (keras/src/saving/keras_saveable.py)
    vars(copied).update(vars(loss))

    def call(*args: Tensor) -> Tensor:
        value = type(loss).call(copied, *args)
        return value * tf.cast(factor, value.dtype)

    copied.call = call
    return copied


def add_up_first(optimizer: Optimizer, divisor: int = 1) -> None:
    """Has an optimizer add up gradients over replicas, and divide them, before it does anything else to them.

    Keras clips the gradients of each replica alone (keras/src/optimizers/base_optimizer.py, `apply`), so that N
    replicas would train otherwise than one with the whole batch.
    """
    apply = optimizer.apply
    add_up = keras_patches.replace_gradient_sum(optimizer, lambda _: list)

    def apply_sum(grads: Sequence[Tensor], trainable_variables: Sequence[Variable] | None = None) -> None:
        if trainable_variables is None:
            trainable_variables = keras_private.variables_of(optimizer)
        variables = list(trainable_variables)
        sums = [g for g, _ in add_up(zip(grads, variables, strict=True))]
        if divisor > 1 and not gradients.are_local():
            sums = [None if g is None else keras.ops.divide(g, divisor) for g in sums]
        if tensorflow_private.replicas_decide_by_themselves() or not _updates_conditionally(optimizer):
            apply(sums, variables)
            return

        def together(strategy: Strategy, sums: list[Tensor]) -> None:
            first = [None if g is None else strategy.experimental_local_results(g)[0] for g in sums]
            with tensorflow_patches.updating_together():
                apply(first, variables)

        tf.distribute.get_replica_context().merge_call(together, args=(sums,))

    optimizer.apply = apply_sum


def _updates_conditionally(optimizer: Optimizer) -> bool:
    return bool(optimizer.gradient_accumulation_steps or optimizer.use_ema)
