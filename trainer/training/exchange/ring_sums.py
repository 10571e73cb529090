"""Sums of tensors over tasks by a ring (ring.py): dense ones in packs, rows of sparse ones gathered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import tensorflow as tf

from trainer.model_dir.arrays import Array
from trainer.training.exchange import step_time
from trainer.training.exchange.ring import NOW, Ring
from trainer.training.private.one_of_many import Others
from trainer.workloads.types import Tensor


def others(ring: Ring, most: int) -> Others:
    """The other tasks of a ring, for a strategy.

    Args:
        most: bytes of several values that are sent as one.
    """
    return Others(ring.rank, ring.size, partial(add_up, ring, most=most), partial(gather, ring))


def add_up(ring: Ring, values: Sequence[Tensor], most: int) -> list[Tensor]:
    """Returns the sum of each value over all tasks, which have as many, of the same types. Of rows (tf.IndexedSlices)
    tasks may have different numbers: their sum is those of all tasks, one behind the other.

    A pack of dense values is sent as soon as they are computed: of gradients those of the last layers, while those of
    earlier ones still are computed. Only when all are on their way does the step wait for sums, so that no thread of
    TensorFlow's is blocked before.

    Args:
        most: bytes of several values that are sent as one.
    """
    packs = list(_packs(values, most))
    rows = [i for i, value in enumerate(values) if isinstance(value, tf.IndexedSlices)]
    # TensorFlow runs functions of Python's in the order in which they are added to a graph (auto_control_deps.py).
    tickets = [_begin(ring, _flat([values[i] for i in pack])) for pack in packs]
    parts = [(_begin_to_gather(ring, values[i].indices), _begin_to_gather(ring, values[i].values)) for i in rows]
    totals = dict[int, Tensor]()
    for pack, ticket in zip(packs, tickets, strict=True):
        totals |= zip(pack, _end(ring, ticket, [values[i] for i in pack]), strict=True)
    for i, (indices, of_rows) in zip(rows, parts, strict=True):
        value = values[i]
        gathered = _end_to_gather(ring, of_rows, value.values), _end_to_gather(ring, indices, value.indices)
        totals[i] = tf.IndexedSlices(*gathered, value.dense_shape)
    return [totals[i] for i in range(len(values))]


def gather(ring: Ring, value: Tensor, axis: int) -> Tensor:
    """The values of all tasks along an axis, one behind the other."""
    order = [axis, *(i for i in range(value.shape.rank) if i != axis)]
    first = tf.transpose(value, order)
    gathered = _end_to_gather(ring, _begin_to_gather(ring, first), first)
    return tf.transpose(gathered, np.argsort(order).tolist())


def from_first(ring: Ring, words: Array) -> Array:
    """The first task's words, integers, on all tasks, which give as many: now, not in a graph.

    Raises:
        tf.errors.OpError: a peer is gone, or gives another number; as an operation of TensorFlow's would.
    """
    mine = words if ring.rank == 0 else np.zeros_like(words)
    try:
        return ring.end(ring.begin(NOW, mine))
    except ConnectionError as error:
        raise tf.errors.UnavailableError(None, None, str(error)) from None
    except ValueError as error:
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from None


def _packs(values: Sequence[Tensor], most: int) -> Iterator[list[int]]:
    """Positions of the dense values that go together, the last ones first. One whose size is known at run time only
    goes alone."""
    pack: list[int] = []
    size = 0
    for i in reversed(range(len(values))):
        value = values[i]
        if isinstance(value, tf.IndexedSlices):
            continue
        value_bytes = value.shape.num_elements() * value.dtype.size if value.shape.is_fully_defined() else most
        if pack and (size + value_bytes > most or value.dtype != values[pack[0]].dtype):
            yield pack
            pack, size = [], 0
        pack.append(i)
        size += value_bytes
    if pack:
        yield pack


def _flat(values: Sequence[Tensor]) -> Tensor:
    flat = [tf.reshape(value, [-1]) for value in values]
    return flat[0] if len(flat) == 1 else tf.concat(flat, 0)


def _begin(ring: Ring, packed: Tensor) -> Tensor:
    return tf.numpy_function(ring.begin, [next(ring.keys), packed], tf.int64, name=step_time.BEGIN)


def _end(ring: Ring, ticket: Tensor, values: Sequence[Tensor]) -> list[Tensor]:
    """The sums of the values of a pack."""
    total = tf.numpy_function(ring.end, [ticket], values[0].dtype, name=step_time.END)
    if len(values) == 1:
        (value,) = values
        shaped = tf.reshape(total, value.shape if value.shape.is_fully_defined() else tf.shape(value))
        return [tf.ensure_shape(shaped, value.shape)]
    sizes = [value.shape.num_elements() for value in values]
    total.set_shape([sum(sizes)])
    parts = tf.split(total, sizes)
    return [tf.reshape(part, value.shape) for part, value in zip(parts, values, strict=True)]


def _begin_to_gather(ring: Ring, value: Tensor) -> Tensor:
    flat = tf.reshape(value, [-1])
    return tf.numpy_function(ring.begin_to_gather, [next(ring.keys), flat], tf.int64, name=step_time.BEGIN)


def _end_to_gather(ring: Ring, ticket: Tensor, value: Tensor) -> Tensor:
    gathered = tf.numpy_function(ring.end_to_gather, [ticket], value.dtype, name=step_time.END)
    rest = value.shape[1:]
    shape = tf.concat([[-1], rest if rest.is_fully_defined() else tf.shape(value)[1:]], 0)
    return tf.ensure_shape(tf.reshape(gathered, shape), [None, *rest])
