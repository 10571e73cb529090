"""The closures that ps-workers run: up to K steps, each with a ticket that the chief issues."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import keras
import tensorflow as tf

from trainer.protocol import events
from trainer.training.exchange import step_time
from trainer.training.loops.ps.counters import Claim, Counters
from trainer.training.loops.ps.update_fence import Fence
from trainer.training.loops.ps.variable_copies import Copies
from trainer.training.model.state import TrainState
from trainer.training.model.step import Step
from trainer.training.private import keras_private
from trainer.training.runtime.channel import Channel
from trainer.training.task import TrainingTask
from trainer.training.weights.untracked import used_by
from trainer.workloads.types import Dataset, Strategy, Tensor

Closure = Callable[[Iterator[Dataset]], None]


def make_closure(
    job: TrainingTask, strategy: Strategy, state: TrainState, step: Step, counters: Counters, channel: Channel
) -> Closure:
    """Returns a closure of up to K steps, which any worker may run, while there are tickets."""
    communication = job.spec.communication
    rounded = communication.gradients == "bfloat16"
    fence = Fence([*state.others, state.optimizer], counters.begun, counters.ended, as_bfloat16=rounded)
    copies = _rounded_weights(state) if communication.weights == "bfloat16" else None
    if copies:
        fence.put_aside = copies.put_aside
    one_step = functools.partial(_one_step, strategy, step, counters, fence, copies)
    most = job.spec.train.steps_per_call

    # autograph=False: converting this and the dataset's function would take 1.2 s of every start (decision 12).
    @tf.function(autograph=False)
    def closure(iterator: Iterator[Dataset]) -> None:
        # Not inside a branch: a value that differs per worker can only be captured at the top (2.21).
        worker = tf.cast(tf.distribute.coordinator.experimental_get_current_worker_index(), tf.int32)
        begun, none = step_time.now(), tf.constant(0, tf.int64)
        sums, spent = tf.zeros([1 + step.width]), tf.zeros([2], tf.float64)
        first = _Reached(counters.claim(1), none, none, sums, spent, begun)
        # No branch within, and few messages: each that the loop adds goes to a ps in each step (decision 77).
        _, reached = tf.while_loop(
            lambda i, so_far: (i < most) & (so_far.claim.ticket <= so_far.claim.last),
            lambda i, so_far: (i + 1, one_step(iterator, tf.cast(i + 1 < most, tf.int64), so_far)),
            (tf.constant(0), first),
            parallel_iterations=1,
        )
        # The last update's end: the steps before it noticed it by their tickets.
        ended = step_time.after([counters.ended.read_value()])
        spent = step_time.measured(reached.spent + tf.stack([0.0, ended - reached.ready]))
        seconds = tf.concat([spent, [ended - begun]], 0)

        def report() -> bool:
            return counters.report(worker, reached.done, reached.bad, reached.sums, seconds)

        tf.cond(reached.done > 0, report, lambda: False)
        used_by(job, state, tf.compat.v1.get_default_graph())
        channel.send(events.Traced())  # Python code runs once, when the graph is traced

    made: Closure = closure
    return made


class _Reached(NamedTuple):
    """What a step gives the one after it."""

    claim: Claim
    """The ticket of the next step."""
    done: Tensor
    """Number of steps that were made."""
    bad: Tensor
    """The ticket of a loss that is not finite, or 0."""
    sums: Tensor
    """Sums of the loss and of the figures."""
    spent: Tensor
    """Seconds of waiting for data, and seconds of the exchange with ps."""
    ready: Tensor
    """The time at which the last gradients were computed."""


def _one_step(
    strategy: Strategy,
    step: Step,
    counters: Counters,
    fence: Fence,
    copies: Copies | None,
    iterator: Iterator[Dataset],
    more: Tensor,
    before: _Reached,
) -> _Reached:
    """Builds the part of a graph that makes a step, and claims the next one if it asks for `more`.

    The exchange lasts from the time at which gradients are ready until the next ticket has come, which a ps gives after
    the update. To wait for the end of the update itself would take a message more.
    """
    fence.sent, fence.holds = [before.claim.round_], lambda sent: tf.equal(sent, counters.round)
    with tf.control_dependencies([before.claim.ticket]):
        asked = step_time.now()
    with tf.control_dependencies([asked]):
        batch = next(iterator)
    waited = step_time.arrived(batch) - asked
    with copies.of_a_step() if copies else contextlib.nullcontext():
        applied, loss, vector = strategy.run(step.run, (batch,))
    finite = tf.math.is_finite(loss)
    counts = applied | ~finite  # a batch that float16 skips is not a step
    added = tf.concat([[loss], vector], 0)
    added = tf.where(counts, added, tf.zeros_like(added))
    return _Reached(
        claim=counters.claim_after(finite, more),
        done=before.done + tf.cast(counts, tf.int64),
        bad=tf.where(finite, before.bad, before.claim.ticket),
        sums=before.sums + added,
        spent=before.spent + tf.stack([waited, asked - before.ready]),
        ready=fence.take_ready(),
    )


def _rounded_weights(state: TrainState) -> Copies:
    """Returns copies in bfloat16 of the weights that a step reads whole. Of a table of embeddings it reads some rows,
    on the ps."""
    tables = [layer for layer in keras_private.all_layers(state.model) if isinstance(layer, keras.layers.Embedding)]
    rows = {id(v) for table in tables for v in table.variables}
    weights = [v for v in state.model.trainable_variables if v.dtype == "float32" and id(v) not in rows]
    return Copies(weights, rounded=weights)
