"""The counters of a ps job: its tickets, its steps, and what its workers report."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.training.runtime.created_variables import OWN
from trainer.workloads.types import Tensor

NO_TICKETS = 2**40
"""More than a round has."""


class Reading(NamedTuple):
    """What the counters show; see `Counters`."""

    taken: int
    step: int
    """The step that was reached."""
    rows: npt.NDArray[np.float64]
    worker_steps: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]


class Claim(NamedTuple):
    """Tickets that a worker took."""

    round_: Tensor
    ticket: Tensor
    """The last one; steps may be made for those up to `last`."""
    last: Tensor
    """The last ticket of the round."""


class Counters:
    """The job's counters, on one ps."""

    def __init__(self, workers: int, width: int) -> None:
        common = {"name": OWN, "state": False, "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA}
        self.taken = tf.Variable(0, dtype=tf.int64, **common)
        """The last ticket that was taken; a ticket is the number of a step."""
        self.last = tf.Variable(0, dtype=tf.int64, **common)
        """The round's last ticket: later ones are not applied."""
        self.round = tf.Variable(0, dtype=tf.int64, **common)
        """A ticket is valid in its own round only: a worker that returns after its ticket was issued again changes
        nothing."""
        self.begun = tf.Variable(0, dtype=tf.int64, **common)
        """Updates for which all gradients had arrived, applied or not."""
        self.ended = tf.Variable(0, dtype=tf.int64, **common)
        """Number of these that have ended. An update that a lost worker or ps interrupted never ends."""
        self.worker_steps = tf.Variable(np.zeros(workers, np.int64), **common)
        # Row per worker: the ticket whose loss was not finite (0: none), then loss and metrics of its last closure.
        self.rows = tf.Variable(np.zeros((workers, 3 + width)), **common)
        # Row per worker: its steps, and their figures added up.
        self.totals = tf.Variable(np.zeros((workers, 1 + width)), **common)
        self._taken = np.zeros(1 + width)
        # Row per worker: seconds of its steps' waits for data, of their exchange with ps, and of its closures.
        self.seconds = tf.Variable(np.zeros((workers, 3)), **common)

    def reader(self, step: tf.Variable) -> Callable[[], Reading]:
        """Returns a function that reads the counters with one message to each ps.

        Args:
            step: the counter of the steps that were applied.
        """
        parts = (self.taken, step, self.rows, self.worker_steps, self.seconds)
        ends = np.cumsum([part.shape.num_elements() for part in parts])[:-1]

        @tf.function(autograph=False)
        def read() -> Tensor:
            values = [part.read_value() for part in parts]
            with tf.device("/job:chief/device:CPU:0"):
                return tf.concat([tf.cast(tf.reshape(each, [-1]), tf.float64) for each in values], 0)

        def reading() -> Reading:
            values = (
                each.reshape(part.shape) for each, part in zip(np.split(read().numpy(), ends), parts, strict=True)
            )
            taken, reached, rows, worker_steps, seconds = values
            return Reading(int(taken), int(reached), rows, worker_steps.astype(np.int64), seconds)

        return reading

    def claim(self, count: int | Tensor) -> Claim:
        """Builds the part of a graph that takes `count` tickets.

        Two workers that add at once may read the same number: then tickets are lost, and none is applied twice.
        """
        with tf.device(self.taken.device):
            round_ = self.round.read_value()
            with tf.control_dependencies([round_]):
                self.taken.assign_add(count)
            message = tf.stack([round_, self.taken.read_value(), self.last.read_value()])
        return Claim(*tf.unstack(message))

    def claim_after(self, finite: Tensor, count: Tensor) -> Claim:
        """The same after the updates before it; see `end_unless`."""
        # Of tf.stack Grappler would make two messages (RemoveStackSliceSameAxis).
        message = tf.concat([[_unless(finite)], [count]], 0)
        with tf.device(self.taken.device):
            less, count = tf.unstack(message)
            self.last.assign_sub(less)
            with tf.control_dependencies([self.ended.read_value()]):
                taken = tf.identity(count)
        return self.claim(taken)

    def end_unless(self, finite: Tensor) -> None:
        """Builds the part of a graph that leaves no worker a ticket after a loss that is not finite: the step that is
        reported is the first such one."""
        self.last.assign_sub(_unless(finite))

    def report(self, worker: Tensor, done: Tensor, bad: Tensor, sums: Tensor, seconds: Tensor) -> bool:
        """Builds the part of a graph that writes a worker's row, from the sums over the steps of its closure."""
        row = tf.concat([tf.cast([bad, done], tf.float64), tf.cast(sums, tf.float64)], 0)
        tf.raw_ops.ResourceScatterUpdate(resource=self.rows.handle, indices=worker, updates=row)
        tf.raw_ops.ResourceScatterAdd(resource=self.worker_steps.handle, indices=worker, updates=done)
        added = tf.concat([row[1:2], row[3:]], 0)
        tf.raw_ops.ResourceScatterAdd(resource=self.totals.handle, indices=worker, updates=added)
        tf.raw_ops.ResourceScatterAdd(resource=self.seconds.handle, indices=worker, updates=seconds)
        return True

    def take(self) -> tuple[npt.NDArray[np.float64], float]:
        """The sum of the figures that were reported since the last time, and the number of their steps.

        A worker that dies takes those of its last closure with it.
        """
        now = self.totals.numpy().sum(axis=0)
        added, self._taken = now - self._taken, now
        return added[1:], float(added[0])

    def under_way(self) -> int:
        """Number of updates that have begun and not ended. In a new round no update can follow once it is 0: an update
        checks its round after it has counted itself as begun."""
        ended = int(self.ended.numpy())  # first: one that begins and ends in between must not hide another
        return int(self.begun.numpy()) - ended


def _unless(finite: Tensor) -> Tensor:
    """What makes `last` less than any ticket, or leaves it as it is."""
    return tf.where(finite, tf.constant(0, tf.int64), tf.constant(NO_TICKETS, tf.int64))
