"""Whether the state of a metric adds up over steps and replicas."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.workloads.types import Metric, Tensor

UNKNOWN_SIZE = 8
"""Taken for a dimension that a trace leaves open."""
_Random = np.random.Generator
_Shape = list[int]
_KINDS: list[tuple[Callable[[_Random, _Shape], Tensor], int]] = [
    (lambda random, shape: random.uniform(size=shape), 2),
    (lambda random, shape: random.integers(0, 2, size=shape).astype(float), 2),  # such as labels
    (lambda random, shape: random.uniform(-100, 100, size=shape), 10),
]
"""Random batches to try: a function that makes floats, and the upper limit of integers."""


def is_kerass(metric: Metric) -> bool:
    """Whether Keras itself updates the metric's state; all of its own add up (test_additive.py)."""
    return bool(type(metric).update_state.__module__.split(".")[0] == "keras")


def adds_up(
    metric: Metric, empty: Sequence[npt.NDArray[np.generic]], args: Sequence[Tensor], kwargs: Mapping[str, Tensor]
) -> bool:
    """Whether each batch adds the same to the metric's state, whatever that is; tried with random batches.

    A metric that cannot take random values, or whose state they do not change, counts as one that does not add up.

    Args:
        empty: the values of its variables before the first batch.
        args, kwargs: of `update_state`, with tensors as tf.TensorSpec.
    """
    random = np.random.default_rng(0)
    assigned, shown = set[int](), set[int]()
    for kind in _KINDS:
        make = functools.partial(_values, random=random, floats=kind[0], limit=kind[1])
        for i, (e, a, b, ab) in _tried(metric, empty, (tuple(args), dict(kwargs)), make).items():
            near = 1e-5 * max(1.0, np.abs(a).max(initial=0), np.abs(b).max(initial=0))
            if not np.allclose(ab - e, (a - e) + (b - e), rtol=1e-3, atol=near):
                return False
            assigned.add(i)
            if (a != e).any() or (b != e).any():
                shown.add(i)
    return bool(assigned) and assigned == shown


_Values = tuple[npt.NDArray[np.float64], ...]


def _tried(
    metric: Metric,
    empty: Sequence[npt.NDArray[np.generic]],
    arguments: Tensor,
    make: Callable[[Tensor], Tensor],
) -> dict[int, _Values]:
    """Returns the values of each variable that `update_state` assigns, by its index: before, after each of two batches,
    and after both. It is empty if the metric cannot take these batches."""

    def after(values: Sequence[Tensor], batch: Tensor) -> list[Tensor]:
        positional, by_name = batch
        values_after: list[Tensor] = metric.stateless_update_state(list(values), *positional, **by_name)
        return values_after

    try:
        begin = [tf.constant(value) for value in empty]
        one, other = (tf.nest.map_structure(make, arguments) for _ in range(2))
        first, second = after(begin, one), after(begin, other)
        four = list(zip(begin, first, second, after(first, other), strict=True))
        values = {i: tuple(np.asarray(v, np.float64) for v in each) for i, each in enumerate(four)}
    except Exception:  # the user's code, with values that it does not expect
        return {}
    if not all(np.isfinite(value).all() for each in values.values() for value in each):
        return {}
    return {i: values[i] for i, (start, *later) in enumerate(four) if not all(each is start for each in later)}


def _values(value: Tensor, random: _Random, floats: Callable[[_Random, _Shape], Tensor], limit: int) -> Tensor:
    if not isinstance(value, tf.TensorSpec):
        return value
    shape = [UNKNOWN_SIZE if size is None else size for size in value.shape]
    if value.dtype.is_floating:
        return tf.constant(floats(random, shape), value.dtype)
    if value.dtype == tf.string:
        return tf.fill(shape, "a")
    return tf.cast(random.integers(0, limit, size=shape), value.dtype)
