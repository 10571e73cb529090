"""Where a synchronous loop is in its graph, for the stacks of a job that hangs."""

from __future__ import annotations

import tensorflow as tf

from trainer.protocol.stacks import IN_EXCHANGE, IN_STEP, WAITS_FOR_DATA
from trainer.training.exchange.step_time import Added, exchanges
from trainer.training.runtime import created_variables
from trainer.training.runtime.channel import Channel
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
            self._arrived, self._computed, self._ended = (created_variables.own(0, dtype=tf.int64) for _ in range(3))
        self._step = step
        channel.doing = self.text

    def arrived(self, batch: Tensor) -> None:
        self._count(self._arrived, tf.nest.flatten(batch, expand_composites=True))

    def made(self, work: Added, end: Tensor) -> None:
        """
        Args:
            work: a step; what it gives to the first exchange with other tasks are its gradients, as a rule.
            end: known once it is completed.
        """
        if groups := exchanges(work.operations):
            self._count(self._computed, groups[0][0])
        self._count(self._ended, [end])

    def text(self) -> str:
        """Batches that float16 skips count as steps."""
        ended, computed, arrived = (int(each.numpy()) for each in (self._ended, self._computed, self._arrived))
        where = IN_EXCHANGE if computed > ended else IN_STEP if arrived > ended else WAITS_FOR_DATA
        return f"{where} {self._step + ended + 1}"

    def _count(self, counter: tf.Variable, after: list[Tensor]) -> None:
        with tf.control_dependencies(after), tf.device("CPU:0"):
            counter.assign_add(1, read_value=False)
