"""Gradients cross the network as bfloat16, where the spec asks for it (communication.gradients)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def compress(optimizer: Any) -> None:
    """Has an optimizer add up gradients over replicas in bfloat16: half the bytes of float32. Updates stay float32.

    Replaces a private method of Keras' TFOptimizer (keras/src/backend/tensorflow/optimizer.py): keras is pinned, and a
    test trains with it. Sparse gradients go as they went.
    """
    add_up = optimizer._all_reduce_sum_gradients

    def add_up_compressed(pairs: Any) -> Any:
        pairs = list(pairs)
        small = [(tf.cast(g, tf.bfloat16) if _is_dense(g) else g, v) for g, v in pairs]
        return [
            (tf.cast(total, given.dtype) if _is_dense(given) else total, v)
            for (total, v), (given, _) in zip(add_up(small), pairs, strict=True)
        ]

    optimizer._all_reduce_sum_gradients = add_up_compressed


def _is_dense(gradient: Any) -> bool:
    return isinstance(gradient, tf.Tensor) and gradient.dtype == tf.float32
