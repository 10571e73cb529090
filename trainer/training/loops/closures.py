"""The closures that ps-workers run: up to K steps, each with a ticket that the chief issues."""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.protocol import events
from trainer.training import keras_private, step_time, tensorflow_patches
from trainer.training.channel import Channel
from trainer.training.copies import Copies
from trainer.training.state import TrainState
from trainer.training.step import Step
from trainer.training.task import TrainingTask
from trainer.workloads.types import Dataset, Optimizer, Strategy, Tensor, Variable

SMALL = 100_000
"""Bytes of a gradient that is sent together with others."""
NO_TICKETS = 2**40
"""More than a round has."""

Closure = Callable[[Iterator[Dataset]], None]


class Reading(NamedTuple):
    """What the counters show; see `Counters`."""

    taken: int
    step: int
    """The step that was reached."""
    rows: npt.NDArray[np.float64]
    worker_steps: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]


class Counters:
    """The job's counters, on one ps."""

    def __init__(self, workers: int, width: int) -> None:
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.taken = tf.Variable(0, dtype=tf.int64, state=False, aggregation=first)
        """The last ticket that was taken; a ticket is the number of a step."""
        self.last = tf.Variable(0, dtype=tf.int64, state=False, aggregation=first)
        """The round's last ticket: later ones are not applied."""
        self.round = tf.Variable(0, dtype=tf.int64, state=False, aggregation=first)
        """A ticket is valid in its own round only: a worker that returns after its ticket was issued again changes
        nothing."""
        self.begun = tf.Variable(0, dtype=tf.int64, state=False, aggregation=first)
        """Updates for which all gradients had arrived, applied or not."""
        self.ended = tf.Variable(0, dtype=tf.int64, state=False, aggregation=first)
        """Number of these that have ended. An update that a lost worker or ps interrupted never ends."""
        self.worker_steps = tf.Variable(np.zeros(workers, np.int64), state=False, aggregation=first)
        # Row per worker: the ticket whose loss was not finite (0: none), then loss and metrics of its last closure.
        self.rows = tf.Variable(np.zeros((workers, 3 + width)), state=False, aggregation=first)
        # Row per worker: its steps, and their figures added up.
        self.totals = tf.Variable(np.zeros((workers, 1 + width)), state=False, aggregation=first)
        self._taken = np.zeros(1 + width)
        # Row per worker: seconds of its steps' waits for data, of their exchange with ps, and of its closures.
        self.seconds = tf.Variable(np.zeros((workers, 3)), state=False, aggregation=first)

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
            found = (each.reshape(part.shape) for each, part in zip(np.split(read().numpy(), ends), parts, strict=True))
            taken, reached, rows, worker_steps, seconds = found
            return Reading(int(taken), int(reached), rows, worker_steps.astype(np.int64), seconds)

        return reading

    def claim(self, count: int | Tensor) -> list[Tensor]:
        """Builds the part of a graph that takes tickets; gives the round, the last of `count` tickets, and the last of
        the round.

        Two workers that add at once may read the same number: then tickets are lost, and none is applied twice.
        """
        with tf.device(self.taken.device):
            round_ = self.round.read_value()
            with tf.control_dependencies([round_]):
                self.taken.assign_add(count)
            message = tf.stack([round_, self.taken.read_value(), self.last.read_value()])
        found: list[Tensor] = tf.unstack(message)
        return found

    def claim_after(self, finite: Tensor, count: Tensor) -> list[Tensor]:
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


def make_closure(
    job: TrainingTask, strategy: Strategy, state: TrainState, step: Step, counters: Counters, channel: Channel
) -> Closure:
    """Returns a closure of up to K steps, which any worker may run, while there are tickets."""
    fence = Fence([*state.others, state.optimizer], counters.begun, counters.ended)
    copies = _rounded_copies(state) if job.spec.communication.weights == "bfloat16" else None
    if copies:
        fence.put_aside = copies.put_aside
    one_step = functools.partial(_one_step, strategy, step, counters, fence, copies)
    most = job.spec.train.steps_per_call

    # autograph=False: converting this and the dataset's function would take 1.2 s of every start (decision 12).
    @tf.function(autograph=False)
    def closure(iterator: Iterator[Dataset]) -> None:
        # Not inside a branch: a value that differs per worker can only be captured at the top (2.21).
        worker = tf.cast(tf.distribute.coordinator.experimental_get_current_worker_index(), tf.int32)
        begun = step_time.now()
        # No branch within, and few messages: each that the loop adds goes to a ps in each step (decision 77).
        *_, done, bad, sums, spent, ready = tf.while_loop(
            lambda i, round_, ticket, last, *_: (i < most) & (ticket <= last),
            lambda i, *so_far: (i + 1, *one_step(iterator, tf.cast(i + 1 < most, tf.int64), *so_far)),
            (
                tf.constant(0), *counters.claim(1), tf.constant(0, tf.int64), tf.constant(0, tf.int64),
                tf.zeros([1 + step.width]), tf.zeros([2], tf.float64), begun,
            ),
            parallel_iterations=1,
        )  # fmt: skip
        # The last update's end: the steps before it noticed it by their tickets.
        ended = step_time.after([counters.ended.read_value()])
        spent = step_time.measured(spent + tf.stack([0.0, ended - ready]))
        seconds = tf.concat([spent, [ended - begun]], 0)

        tf.cond(done > 0, lambda: counters.report(worker, done, bad, sums, seconds), lambda: False)
        channel.send(events.Traced())  # Python code runs once, when the graph is traced

    made: Closure = closure
    return made


def _one_step(
    strategy: Strategy,
    step: Step,
    counters: Counters,
    fence: Fence,
    copies: Copies | None,
    iterator: Iterator[Dataset],
    more: Tensor,
    round_: Tensor,
    ticket: Tensor,
    _last: Tensor,
    done: Tensor,
    bad: Tensor,
    sums: Tensor,
    spent: Tensor,
    ready: Tensor,
) -> tuple[Tensor, ...]:
    """What was claimed for the step after this one, if it asks for `more`; done, the ticket of a bad loss, the sums of
    figures, the seconds of waiting for data and of the exchange with ps before it, and when its gradients were
    computed.

    The exchange lasts from then until the next ticket has come, which a ps gives after the update. To wait for the end
    of the update itself would take a message more.
    """
    fence.holds = lambda: tf.equal(round_, counters.round)
    with tf.control_dependencies([ticket]):
        asked = step_time.now()
    with tf.control_dependencies([asked]):
        batch = next(iterator)
    waited = step_time.arrived(batch) - asked
    if copies is not None:
        copies.read()
    with copies.in_use() if copies is not None else contextlib.nullcontext():
        applied, loss, vector = strategy.run(step.run, (batch,))
    finite = tf.math.is_finite(loss)
    counts = applied | ~finite  # a batch that float16 skips is not a step
    added = tf.concat([[loss], vector], 0)
    added = tf.where(counts, added, tf.zeros_like(added))
    return (
        *counters.claim_after(finite, more),
        done + tf.cast(counts, tf.int64),
        tf.where(finite, bad, ticket),
        sums + added,
        spent + tf.stack([waited, asked - ready]),
        fence.take_ready(),
    )


def _unless(finite: Tensor) -> Tensor:
    """What makes `last` less than any ticket, or leaves it as it is."""
    return tf.where(finite, tf.constant(0, tf.int64), tf.constant(NO_TICKETS, tf.int64))


def _rounded_copies(state: TrainState) -> Copies:
    """Of the weights that a step reads whole. Of a table of embeddings it reads some rows, on the ps."""
    tables = [layer for layer in keras_private.all_layers(state.model) if isinstance(layer, keras.layers.Embedding)]
    rows = {id(v) for table in tables for v in table.variables}
    weights = [v for v in state.model.trainable_variables if v.dtype == "float32" and id(v) not in rows]
    return Copies(weights, rounded=weights)


class Fence:
    """Makes optimizers apply their gradients only if `holds()`, and then to all variables.

    `holds` is evaluated when all gradients have arrived on the ps, and what follows does not depend on the worker: even
    if it dies or stops, its update is applied to all variables, or to none. `begun` counts an update before the check,
    `ended` when all variables are updated. If a step has several optimizers, a worker that dies between two of them
    leaves the update of the first; the last one counts the step.
    """

    def __init__(self, optimizers: Sequence[Optimizer], begun: tf.Variable, ended: tf.Variable) -> None:
        self._begun, self._ended = begun, ended
        self.holds: Callable[[], Tensor] = lambda: tf.constant(True)
        self.put_aside: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        """Within it, variables are those on the ps; see `Copies`."""
        self._ready: Tensor | None = None
        for optimizer in optimizers:
            # Of a LossScaleOptimizer that within: the scale may well follow gradients that are not applied.
            within = keras_private.inner(optimizer)
            within.apply = functools.partial(self._apply_if_it_holds, within, within.apply)

    def take_ready(self) -> Tensor:
        """The time at which the gradients of the step that was traced last were computed, before they are sent.

        UNKNOWN if that is within another graph, as a condition of float16. Of several optimizers it is the last one's.
        """
        ready, self._ready = self._ready, None
        known = ready is not None and ready.graph is tf.compat.v1.get_default_graph()
        return ready if known else tf.constant(step_time.UNKNOWN, tf.float64)

    def _apply_if_it_holds(
        self,
        optimizer: Optimizer,
        own: Callable[[list[Tensor], list[Variable]], None],
        grads: list[Tensor],
        trainable_variables: Iterable[Variable] | None = None,
    ) -> None:
        device = keras_private.step_counter(optimizer).value.device
        variables = list(trainable_variables or keras_private.variables_of(optimizer))

        def across(strategy: Strategy, gradients: list[Tensor]) -> None:
            self._ready = step_time.arrived([g for g in gradients if g is not None])
            there = _sent(gradients, variables)
            arrived = [t for t in tf.nest.flatten(there, expand_composites=True) if t is not None]

            def apply() -> bool:
                with tensorflow_patches.updating_together():
                    own(there, variables)
                return True

            apply_if(self.holds, self._begun, self._ended, device, arrived, apply)

        # As in Keras' LossScaleOptimizer: in a replica's context no branch may merge_call, which `apply` does.
        with self.put_aside():
            tf.distribute.get_replica_context().merge_call(across, args=(grads,))


def _sent(gradients: Sequence[Tensor], variables: Sequence[Variable]) -> list[Tensor]:
    """The gradients, on the ps of their variables. Small ones go there in one message: most variables of a model with
    normalization are small, and a message takes as long as 100 KB."""
    there, small = list(gradients), defaultdict[tuple[str, tf.DType], list[int]](list)
    for i, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
        device = variable.value.device
        if _is_small(gradient):
            small[device, gradient.dtype].append(i)
        elif gradient is not None:  # None: the loss does not use this variable
            with tf.device(device):
                there[i] = tf.nest.map_structure(tf.identity, gradient, expand_composites=True)
    for (device, _), members in small.items():
        message = tf.concat([tf.reshape(gradients[i], [-1]) for i in members], 0)
        with tf.device(device):
            for i, part in zip(
                members, tf.split(message, [gradients[i].shape.num_elements() for i in members]), strict=True
            ):
                there[i] = tf.reshape(part, gradients[i].shape)
    return there


def _is_small(gradient: Tensor) -> bool:
    """Whether it is a small tensor that is still to be sent: not one that came as bfloat16 (compression.py)."""
    dense = isinstance(gradient, tf.Tensor) and gradient.shape.is_fully_defined()
    return dense and "/job:ps" not in gradient.device and gradient.shape.num_elements() * gradient.dtype.size <= SMALL


def apply_if(
    holds: Callable[[], Tensor],
    begun: tf.Variable,
    ended: tf.Variable,
    device: str,
    arrived: Sequence[Tensor],
    apply: Callable[[], bool],
) -> None:
    """Builds the part of a graph that changes variables on the ps, if `holds()` once all of this has arrived there."""
    # Places operations without a device on a ps; the default would be the worker.
    with tf.device(device):
        with tf.control_dependencies(arrived):
            began = begun.assign_add(1, read_value=False)
        with tf.control_dependencies([began]):
            held = holds()
        applied = tf.cond(held, apply, lambda: False)
        with tf.control_dependencies([applied]):
            ended.assign_add(1, read_value=False)
