"""Sums of large tensors over tasks, in parts.

A collective sends a tensor in two messages to the next task. Of one of 288 MB these take memory of their size on both
sides, and nothing is added up while they are on their way: a step of 250 million parameters took 2.05 s, and takes 1.33
in parts (two workers, AVX-512; docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from trainer.training.private.keras_patches import AddUp, replace_gradient_sum
from trainer.workloads.types import Optimizer, Tensor, Variable

PART = 4 << 20
"""Bytes of a part, also in the ring (ring.py). With 2 and 8 MiB steps were as fast, within what they vary."""


def add_up_in_parts(add_up: Callable[[list[Tensor]], Sequence[Tensor]], values: Sequence[Tensor]) -> list[Tensor]:
    """The sums of values, of which `add_up` gets parts of at most PART bytes. Sparse tensors stay whole."""
    parts = [_parts(value) for value in values]
    sums = iter(add_up([part for each in parts for part in each]))
    added = []
    for value, each in zip(values, parts, strict=True):
        totals = [next(sums) for _ in each]
        added.append(totals[0] if len(each) == 1 else tf.reshape(tf.concat(totals, 0), value.shape))
    return added


def send_in_parts(optimizer: Optimizer) -> None:
    """Makes an optimizer add up gradients over replicas in parts."""

    def replacement(original: AddUp) -> AddUp:
        def add_up(values: list[Tensor]) -> list[Tensor]:
            # What stands for the variables, by which the sums are found.
            return [total for total, _ in original([(value, object()) for value in values])]

        def of_pairs(gradients: Iterable[tuple[Tensor, Variable]]) -> list[tuple[Tensor, Variable]]:
            pairs = list(gradients)
            sums = add_up_in_parts(add_up, [gradient for gradient, _ in pairs])
            return [(total, v) for total, (_, v) in zip(sums, pairs, strict=True)]

        return of_pairs

    replace_gradient_sum(optimizer, replacement)


def _parts(value: Tensor) -> list[Tensor]:
    if not isinstance(value, tf.Tensor) or not value.shape.is_fully_defined():
        return [value]
    size, most = value.shape.num_elements(), PART // value.dtype.size
    if size <= most:
        return [value]
    sizes = [most] * (size // most) + [size % most] * (size % most > 0)
    parts: list[Tensor] = tf.split(tf.reshape(value, [-1]), sizes)
    return parts
