"""How gradients are added up over replicas: rows that are the same in each batch, and one step at a time if the number
of rows varies; and steps in which they are not."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.training.private.keras_patches import AddUp, replace_gradient_sum
from trainer.training.private.keras_private import inner
from trainer.training.private.tensorflow_private import constant_value
from trainer.workloads.types import Optimizer, Tensor, Variable

Rows: TypeAlias = npt.NDArray[np.generic]


def add_up_rows(optimizer: Optimizer, batch: int) -> None:
    """Makes an optimizer add up the gradients of an embedding's rows that are the same in each batch, as of positions.

    TensorFlow appends the sparse gradients of replicas to each other (`aggregate_indexed_slices_gradients`,
    tensorflow/python/distribute/cross_device_utils.py). Keras' Adam takes the square of each part of a row's gradient
    (keras/src/optimizers/adam.py), not of their sum. Of tokens the parts are the examples', on one replica or several.

    Args:
        batch: examples of a replica's batch.
    """

    def by_rows(add_up: AddUp) -> AddUp:
        def add_up_values(pairs: Iterable[tuple[Tensor, Variable]]) -> list[tuple[Tensor, Variable]]:
            pairs = list(pairs)
            rows = [_fixed_rows(g, batch) for g, _ in pairs]
            replicas[threading.get_ident()] += b"".join(each.tobytes() for each in rows if each is not None)
            fixed = [each is not None for each in rows]
            sums = add_up((g.values if alone else g, v) for (g, v), alone in zip(pairs, fixed, strict=True))
            return [
                (tf.IndexedSlices(total, g.indices, g.dense_shape) if alone else total, v)
                for (total, v), (g, _), alone in zip(sums, pairs, fixed, strict=True)
            ]

        return add_up_values

    replicas = defaultdict[int, bytes](bytes)  # those of one task are traced in a thread each
    optimizer.replicas_rows = lambda: replicas  # Keras would wrap a dict
    replace_gradient_sum(optimizer, by_rows)


def _fixed_rows(gradient: Tensor, batch: int) -> Rows | None:
    """The rows of a gradient that is of the same ones in each batch, and not of one or several for each example."""
    if not isinstance(gradient, tf.IndexedSlices) or not gradient.values.shape.is_fully_defined():
        return None
    rows = constant_value(gradient.indices)
    return None if rows is None or _are_of_examples(rows, gradient.indices, batch) else rows


def fixed_rows(optimizers: Iterable[Optimizer]) -> set[bytes]:
    """All rows that a step, once traced, adds up in this way: by each replica of this task, if they differ."""
    replicas = defaultdict[int, bytes](bytes)
    for optimizer in optimizers:
        for replica, rows in getattr(inner(optimizer), "replicas_rows", dict)().items():
            replicas[replica] += rows
    return set(replicas.values())


def _are_of_examples(rows: Rows, indices: Tensor, batch: int) -> bool:
    """Whether constant rows are repeated for each example: zeros_like(tokens) is a constant too.

    Of one example they may be either. What was looked up is the input of the gradient's reshape (`_GatherV2Grad`,
    tensorflow/python/ops/array_grad.py).
    """
    looked_up = indices.op.inputs[0] if indices.op.type == "Reshape" else indices
    if batch == 1 or not looked_up.shape.rank or looked_up.shape[0] % batch:
        return False
    each = rows.reshape(batch, -1)
    return bool((each == each[0]).all())


def gather_in_float32(optimizer: Optimizer) -> None:
    """Makes an optimizer gather rows in bfloat16 as float32, which has all its numbers: TensorFlow gathers no bfloat16
    (CollectiveGatherV2, tensorflow/core/ops/collective_ops.cc)."""

    def in_float32(add_up: AddUp) -> AddUp:
        def gather(pairs: Iterable[tuple[Tensor, Variable]]) -> list[tuple[Tensor, Variable]]:
            pairs = list(pairs)
            rows = [isinstance(g, tf.IndexedSlices) and g.dtype == tf.bfloat16 for g, _ in pairs]
            sums = add_up((_cast(g, tf.float32) if cast else g, v) for (g, v), cast in zip(pairs, rows, strict=True))
            return [(_cast(g, tf.bfloat16) if cast else g, v) for (g, v), cast in zip(sums, rows, strict=True)]

        return gather

    replace_gradient_sum(optimizer, in_float32)


def _cast(rows: tf.IndexedSlices, dtype: tf.DType) -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.cast(rows.values, dtype), rows.indices, rows.dense_shape)


def note_rows(optimizer: Optimizer) -> None:
    """Makes an optimizer note, when a step is traced, that a gradient has rows whose number is known at run time only,
    as of an Embedding of sentences that are padded to the longest of their batch; see `rows_vary`."""

    def noting(add_up: AddUp) -> AddUp:
        def add_up_noting(pairs: Iterable[tuple[Tensor, Variable]]) -> list[tuple[Tensor, Variable]]:
            pairs = list(pairs)
            if any(isinstance(g, tf.IndexedSlices) and g.values.shape[0] is None for g, _ in pairs):
                optimizer.rows_vary = True
            return add_up(pairs)

        return add_up_noting

    replace_gradient_sum(optimizer, noting)


def rows_vary(optimizers: Iterable[Optimizer]) -> bool:
    """Whether one of them has noted such rows, so that a call may make one step only.

    Replicas gather their rows. TensorFlow wants the same number of them in each step of a call: "Shape mismatch in the
    collective instance" (tensorflow/core/common_runtime/collective_param_resolver_local.cc). To send the whole table
    instead would change the result: Keras' optimizers take rows that occur twice one by one.
    """
    return any(getattr(inner(each), "rows_vary", False) for each in optimizers)


_local = False
"""Whether steps that are traced are of each replica alone. Not a context variable: replicas are traced in threads."""


@contextlib.contextmanager
def alone(local: bool) -> Iterator[None]:
    """Within, steps that are traced are of each replica alone, if `local`."""
    global _local
    before, _local = _local, local
    try:
        yield
    finally:
        _local = before


def are_local() -> bool:
    """Whether a step that is being traced is of each replica alone: its gradients are means over the batch of that
    replica, instead of parts of a sum over all."""
    return _local


def keep_local(optimizer: Optimizer) -> None:
    """Makes an optimizer add up no gradients in steps of each replica alone."""

    def unless_alone(add_up: AddUp) -> AddUp:
        return lambda pairs: list(pairs) if are_local() else add_up(pairs)

    replace_gradient_sum(optimizer, unless_alone)
