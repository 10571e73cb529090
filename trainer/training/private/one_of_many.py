"""A strategy of one process whose replicas are those of several, between which others than TensorFlow carry the sums.

TensorFlow's MultiWorkerMirroredStrategy starts a server in each process, and knows all of them for as long as it lives.
This one knows how many replicas there are, and which is its own. Everything else it asks two functions.

It is a MirroredStrategy (tensorflow/python/distribute/mirrored_strategy.py) of one CPU. What it replaces is what
CollectiveAllReduceExtended does (collective_all_reduce_strategy.py), by the same methods. Its variables and replica
contexts are theirs, so a model, an optimizer and a `train_step` see no difference.
Test: tests/unit/training/private/test_one_of_many.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.distribute import distribute_utils, values
from tensorflow.python.distribute.mirrored_strategy import MirroredExtended

from trainer.workloads.types import Strategy, Tensor

DEVICE = "CPU:0"


class Others(NamedTuple):
    """The processes beside this one."""

    rank: int
    size: int
    """Of all of them."""
    add_up: Callable[[list[Tensor]], list[Tensor]]
    """Gives the sum of each value, dense or tf.IndexedSlices, over all processes."""
    gather: Callable[[Tensor, int], Tensor]
    """Gives the values of all processes along an axis, one behind the other."""


def one_of_many(others: Others) -> Strategy:
    """The strategy of a process whose replica is one of all processes'."""
    return _OneOfMany(others)


class _OneOfMany(tf.distribute.Strategy):  # type: ignore[misc]
    _collective_key_base = 0  # which MirroredExtended reads

    def __init__(self, others: Others) -> None:
        super().__init__(_Extended(self, others))

    @property
    def cluster_resolver(self) -> tf.distribute.cluster_resolver.ClusterResolver:
        return tf.distribute.cluster_resolver.TFConfigClusterResolver()


class _Extended(MirroredExtended):  # type: ignore[misc]
    def __init__(self, strategy: Strategy, others: Others) -> None:
        self._others = others
        super().__init__(strategy, devices=[DEVICE])

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._others.size

    def _get_replica_id_in_sync_group(self, replica_id: int) -> int:
        return self._others.rank

    def _get_local_replica_id(self, replica_id_in_sync_group: int) -> int:
        return 0

    @property
    def should_checkpoint(self) -> bool:
        return self._others.rank == 0

    @property
    def should_save_summary(self) -> bool:
        return self._others.rank == 0

    def _reduce_to(
        self, reduce_op: tf.distribute.ReduceOp, value: Tensor, destinations: Tensor, options: object
    ) -> Tensor:
        if distribute_utils.is_mirrored(value) and reduce_op == tf.distribute.ReduceOp.MEAN:
            return value
        assert not distribute_utils.is_mirrored(value)
        flat = tf.nest.flatten(value)
        return tf.nest.pack_sequence_as(value, self._reduced(reduce_op, flat))

    def _batch_reduce_to(
        self,
        reduce_op: tf.distribute.ReduceOp,
        value_destination_pairs: Sequence[tuple[Tensor, Tensor]],
        options: object,
    ) -> list[Tensor]:
        return self._reduced(reduce_op, [value for value, _ in value_destination_pairs])

    def _reduced(self, reduce_op: tf.distribute.ReduceOp, given: Sequence[Tensor]) -> list[Tensor]:
        sums = self._others.add_up([_own(value) for value in given])
        return [_mean(total, self._others.size) for total in sums] if reduce_op == tf.distribute.ReduceOp.MEAN else sums

    def _gather_to_implementation(self, value: Tensor, destinations: Tensor, axis: int, options: object) -> Tensor:
        return self._others.gather(_own(value), axis)

    def _experimental_distribute_values_from_function(
        self, value_fn: Callable[[tf.distribute.experimental.ValueContext], Tensor]
    ) -> Tensor:
        value = value_fn(tf.distribute.experimental.ValueContext(self._others.rank, self._others.size))
        return distribute_utils.regroup([value], always_wrap=True)


def _own(value: Tensor) -> Tensor:
    """The value of this process's replica."""
    own = value.values[0] if isinstance(value, values.DistributedValues) else value
    return own if isinstance(own, tf.IndexedSlices) else tf.convert_to_tensor(own)


def _mean(total: Tensor, count: int) -> Tensor:
    if isinstance(total, tf.IndexedSlices):
        return tf.IndexedSlices(total.values / count, total.indices, total.dense_shape)
    return total / count
