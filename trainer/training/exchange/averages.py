"""Sums and means over all replicas, outside steps: of weights, of what optimizers keep, and of layers' statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from trainer.training.exchange.packs import add_up_by_ring
from trainer.training.exchange.parts import PART, add_up_in_parts
from trainer.training.exchange.ring import Ring
from trainer.workloads.types import Strategy, Tensor, Variable


def make_average(
    strategy: Strategy, ring: Ring | None, variables: Sequence[Variable], dtype: tf.DType | None = None
) -> Callable[[], None]:
    """A function that replaces each variable by its mean over all replicas.

    Args:
        dtype: in which means are computed; by default, in each variable's own.
    """
    if not variables or strategy.num_replicas_in_sync == 1:
        return lambda: None

    def values() -> list[Tensor]:
        return [tf.cast(tf.convert_to_tensor(v.value), dtype or v.dtype) for v in variables]

    @tf.function(autograph=False)
    def average() -> None:
        for v, total in zip(variables, sums(strategy, ring, values), strict=True):
            v.assign(tf.cast(total / strategy.num_replicas_in_sync, v.dtype))

    averaged: Callable[[], None] = average
    return averaged


def sums(strategy: Strategy, ring: Ring | None, values: Callable[[], list[Tensor]]) -> list[Tensor]:
    """The sums over all replicas of the values that each of them computes."""

    def add_up() -> list[Tensor]:
        # identity places a tensor on the replica's device: without a device, "destinations can not be empty".
        placed = [tf.identity(value) for value in values()]
        replica, how = tf.distribute.get_replica_context(), tf.distribute.ReduceOp.SUM

        def all_reduced(positions: Iterable[int]) -> list[Tensor]:
            return add_up_in_parts(lambda parts: replica.all_reduce(how, parts), [placed[i] for i in positions])

        return add_up_by_ring(ring, placed, PART, all_reduced) if ring else all_reduced(range(len(placed)))

    return [strategy.experimental_local_results(total)[0] for total in strategy.run(add_up)]
