"""Where a synchronous loop is within its graph, for the stacks of a job that hangs: in a step, or before its batch."""

from __future__ import annotations

import tensorflow as tf

from trainer.protocol.stacks import STEP, WAITS_FOR_DATA
from trainer.training.channel import Channel
from trainer.workloads.types import Tensor


class Position:
    """Counts batches and steps in the graph. Nothing waits for the counts, so that a batch may be read while the step
    before runs; they are read only when the supervisor asks."""

    def __init__(self, channel: Channel, step: int) -> None:
        """
        Args:
            step: after which the loop begins.
        """
        with tf.device("CPU:0"):
            self._arrived, self._ended = (tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2))
        self._step = step
        channel.doing = self.text

    def arrived(self, batch: Tensor) -> None:
        self._count(self._arrived, tf.nest.flatten(batch, expand_composites=True))

    def ended(self, after: Tensor) -> None:
        self._count(self._ended, [after])

    def text(self) -> str:
        """Batches that float16 skips count as steps."""
        ended, arrived = int(self._ended.numpy()), int(self._arrived.numpy())
        return f"{STEP if arrived > ended else WAITS_FOR_DATA} {self._step + ended + 1}"

    def _count(self, counter: tf.Variable, after: list[Tensor]) -> None:
        with tf.control_dependencies(after), tf.device("CPU:0"):
            counter.assign_add(1, read_value=False)
