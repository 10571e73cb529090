"""Sums of tensors over tasks by a ring (ring.py), in packs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import tensorflow as tf

from trainer.training.exchange import step_time
from trainer.training.exchange.ring import Ring
from trainer.training.private.keras_patches import AddUp, replace_gradient_sum
from trainer.workloads.types import Optimizer, Tensor, Variable


def send_by_ring(optimizer: Optimizer, ring: Ring, most: int) -> None:
    """Makes an optimizer add up dense gradients by the ring, the others as before.

    A pack is sent as soon as its gradients are computed, while those of earlier layers still are. Only when all are on
    their way does the step wait for sums, so that no thread of TensorFlow's is blocked before.

    Args:
        most: bytes of several gradients that are sent as one.
    """

    def replacement(original: AddUp) -> AddUp:
        def add_up(gradients: Iterable[tuple[Tensor, Variable]]) -> list[tuple[Tensor, Variable]]:
            pairs = list(gradients)

            def others(positions: list[int]) -> list[Tensor]:
                return [total for total, _ in original([pairs[i] for i in positions])]

            sums = add_up_by_ring(ring, [gradient for gradient, _ in pairs], most, others)
            return [(total, v) for total, (_, v) in zip(sums, pairs, strict=True)]

        return add_up

    replace_gradient_sum(optimizer, replacement)


def add_up_by_ring(
    ring: Ring, values: Sequence[Tensor], most: int, others: Callable[[list[int]], Iterable[Tensor]]
) -> list[Tensor]:
    """Returns the sum of each value over all tasks. Dense ones are added up by the ring, the others by `others`, which
    takes their positions."""
    packs = list(_packs(values, most))
    rest = [i for i, value in enumerate(values) if not _is_dense(value)]
    totals = dict(zip(rest, others(rest), strict=True)) if rest else {}
    for pack, sums in zip(packs, _sums(ring, [[values[i] for i in pack] for pack in packs]), strict=True):
        totals |= zip(pack, sums, strict=True)
    return [totals[i] for i in range(len(values))]


def _packs(gradients: Sequence[Tensor], most: int) -> Iterator[list[int]]:
    """Positions of the gradients that go together, those of the last layers first: they are computed first."""
    pack: list[int] = []
    size = 0
    for i in reversed(range(len(gradients))):
        gradient = gradients[i]
        if not _is_dense(gradient):
            continue
        gradient_bytes = gradient.shape.num_elements() * gradient.dtype.size
        if pack and (size + gradient_bytes > most or gradient.dtype != gradients[pack[0]].dtype):
            yield pack
            pack, size = [], 0
        pack.append(i)
        size += gradient_bytes
    if pack:
        yield pack


def _is_dense(gradient: Tensor) -> bool:
    dense = isinstance(gradient, tf.Tensor) and gradient.dtype.is_floating
    return dense and bool(gradient.shape.is_fully_defined())


def _sums(ring: Ring, packs: Sequence[Sequence[Tensor]]) -> Iterator[list[Tensor]]:
    # TensorFlow runs functions of Python's in the order in which they are added to a graph (auto_control_deps.py).
    tickets: list[Tensor] = []
    for pack in packs:
        flat = [tf.reshape(gradient, [-1]) for gradient in pack]
        packed = flat[0] if len(flat) == 1 else tf.concat(flat, 0)
        tickets.append(tf.numpy_function(ring.begin, [next(ring.keys), packed], tf.int64, name=step_time.BEGIN))
    for pack, ticket in zip(packs, tickets, strict=True):
        total = tf.numpy_function(ring.end, [ticket], pack[0].dtype, name=step_time.END)
        sizes = [gradient.shape.num_elements() for gradient in pack]
        total.set_shape([sum(sizes)])
        parts = tf.split(total, sizes) if len(pack) > 1 else [total]
        yield [tf.reshape(part, gradient.shape) for part, gradient in zip(parts, pack, strict=True)]
