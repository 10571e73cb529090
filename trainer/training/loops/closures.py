"""The closures that ps-workers run: up to K steps, each with a ticket that the chief issues."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from trainer.protocol import events
from trainer.training import keras_private, step_time
from trainer.training.channel import Channel
from trainer.training.copies import Copies
from trainer.training.loops.counters import Counters
from trainer.training.loops.fence import Fence
from trainer.training.state import TrainState
from trainer.training.step import Step
from trainer.training.task import TrainingTask
from trainer.workloads.types import Dataset, Strategy, Tensor

Closure = Callable[[Iterator[Dataset]], None]


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
    fence.sent, fence.holds = [round_], lambda sent: tf.equal(sent, counters.round)
    with tf.control_dependencies([ticket]):
        asked = step_time.now()
    with tf.control_dependencies([asked]):
        batch = next(iterator)
    waited = step_time.arrived(batch) - asked
    if copies is None:
        applied, loss, vector = strategy.run(step.run, (batch,))
    else:
        copies.read()
        with copies.in_use(), step_time.added() as made:
            applied, loss, vector = strategy.run(step.run, (batch,))
        copies.require_unchanged(made.operations)
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


def _rounded_copies(state: TrainState) -> Copies:
    """Of the weights that a step reads whole. Of a table of embeddings it reads some rows, on the ps."""
    tables = [layer for layer in keras_private.all_layers(state.model) if isinstance(layer, keras.layers.Embedding)]
    rows = {id(v) for table in tables for v in table.variables}
    weights = [v for v in state.model.trainable_variables if v.dtype == "float32" and id(v) not in rows]
    return Copies(weights, rounded=weights)
