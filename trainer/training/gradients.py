"""Sends gradients as bfloat16 if the spec asks for it (communication.gradients)."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from trainer.training.keras_patches import AddUp, replace_gradient_sum
from trainer.workloads.types import Optimizer, Tensor, Variable


def compress(optimizer: Optimizer) -> None:
    """Makes an optimizer sum gradients over replicas in bfloat16, half the bytes of float32. Updates stay float32, and
    sparse gradients are sent unchanged."""
    replace_gradient_sum(optimizer, _compressed)


def _compressed(add_up: AddUp) -> AddUp:
    def add_up_compressed(pairs: Iterable[tuple[Tensor, Variable]]) -> list[tuple[Tensor, Variable]]:
        pairs = list(pairs)
        small = [(tf.cast(g, tf.bfloat16) if _is_dense(g) else g, v) for g, v in pairs]
        return [
            (tf.cast(total, given.dtype) if _is_dense(given) else total, v)
            for (total, v), (given, _) in zip(add_up(small), pairs, strict=True)
        ]

    return add_up_compressed


def _is_dense(gradient: Tensor) -> bool:
    return isinstance(gradient, tf.Tensor) and gradient.dtype == tf.float32
