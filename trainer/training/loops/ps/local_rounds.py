"""The closures that ps-workers run with `communication.every`: a worker reads all variables, makes up to that many
steps alone, and sends what has changed.

Weights on the ps change by what the steps have changed them, as by a gradient of theirs (Downpour SGD with several
steps between its messages: Dean et al., NeurIPS 2012). What optimizers and layers keep, such as momentum, becomes that
of the worker which sends last: a sum of changes of two workers could make a variance negative. Counts add up.

A worker keeps nothing between closures. A round is the unit that is lost with it, and its tickets are issued again.
"""

from __future__ import annotations

from collections.abc import Iterator

import keras
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.protocol import events
from trainer.training.exchange import step_time
from trainer.training.loops.ps.closures import Closure
from trainer.training.loops.ps.counters import Counters
from trainer.training.loops.ps.update_fence import apply_if
from trainer.training.loops.ps.variable_copies import Copies
from trainer.training.model.state import TrainState
from trainer.training.model.step import Step
from trainer.training.private import keras_private
from trainer.training.runtime.channel import Channel
from trainer.training.task import TrainingTask
from trainer.training.weights.untracked import used_by
from trainer.workloads.types import Dataset, Strategy, Tensor, Variable


def make_closure(
    job: TrainingTask, strategy: Strategy, state: TrainState, step: Step, counters: Counters, channel: Channel
) -> Closure:
    """Returns a closure of up to `communication.every` steps, which any worker may run, while there are tickets."""
    every = job.spec.communication.every
    rounds = _Rounds(job, strategy, state, step, counters)

    # autograph=False: see closures.py.
    @tf.function(autograph=False)
    def closure(iterator: Iterator[Dataset]) -> None:
        worker = tf.cast(tf.distribute.coordinator.experimental_get_current_worker_index(), tf.int32)
        begun = step_time.now()
        round_, ticket, last = counters.claim(every)
        first = ticket - every
        count = tf.clip_by_value(last - first, 0, every)

        def train() -> bool:
            return rounds.train(iterator, worker, round_, first, count, begun)

        tf.cond(count > 0, train, lambda: False)
        used_by(job, state, tf.compat.v1.get_default_graph())
        channel.send(events.Traced())  # Python code runs once, when the graph is traced

    made: Closure = closure
    return made


class _Rounds:
    def __init__(
        self, job: TrainingTask, strategy: Strategy, state: TrainState, step: Step, counters: Counters
    ) -> None:
        self._strategy, self._step, self._counters, self._state = strategy, step, counters, state
        communication, optimizers = job.spec.communication, list(state.optimizers.values())
        variables = [*state.model.variables, *(v for each in optimizers for v in each.variables)]
        if others := [v for v in variables if not isinstance(v, keras.Variable)]:
            raise UserError(
                f"workload: {job.workload.name}: {others[0].name} is no Keras variable, which communication.every "
                "needs; create it with add_weight() or keras.Variable, or remove communication.every"
            )
        trained = {id(v) for each in optimizers for v in keras_private.variables_of(keras_private.inner(each))}
        kept = list(keras_private.created_as_not_trainable(state.model))
        slots = {id(v) for each in optimizers for v in keras_private.slots(each)}
        counts = {id(keras_private.step_counter(each)) for each in optimizers}
        small = [v for v in variables if id(v) in trained and v.dtype == "float32"]
        self._copies = Copies(variables, small if communication.weights == "bfloat16" else [])
        self._small = {id(v) for v in small} if communication.gradients == "bfloat16" else set[int]()
        self._added = trained | counts | {id(v) for v in kept if not _is_float(v)}
        self._replaced = slots | {id(v) for v in kept if _is_float(v)}

    def train(
        self, iterator: Iterator[Dataset], worker: Tensor, round_: Tensor, first: Tensor, count: Tensor, begun: Tensor
    ) -> bool:
        """Builds the part of a graph that makes a round of `count` steps after ticket `first`."""
        counters, width = self._counters, self._step.width
        with tf.control_dependencies([count]):
            asked = step_time.now()
        with tf.control_dependencies([asked]):
            values = self._copies.read()
        there = step_time.arrived(values)

        def one(i: Tensor, _: Tensor, sums: Tensor, waited: Tensor) -> tuple[Tensor, ...]:
            before = step_time.after([i])
            with tf.control_dependencies([before]):
                batch = next(iterator)
            waited += step_time.arrived(batch) - before
            with self._copies.in_use():
                _, loss, vector = self._strategy.run(self._step.run, (batch,))
            return i + 1, tf.math.is_finite(loss), sums + tf.concat([[loss], vector], 0), waited

        done, finite, sums, waited = tf.while_loop(
            lambda i, finite, *_: (i < count) & finite,
            one,
            (tf.constant(0, tf.int64), True, tf.zeros([1 + width]), tf.constant(0.0, tf.float64)),
            parallel_iterations=1,
        )
        counters.end_unless(finite)
        ready = self._send(values, round_, finite)
        ended = step_time.after([counters.ended.read_value()])
        exchanged = there - asked + ended - ready
        seconds = step_time.measured(tf.stack([waited, exchanged, ended - begun]))
        bad = tf.where(finite, tf.constant(0, tf.int64), first + done)
        return counters.report(worker, done, bad, sums, seconds)

    def _send(self, read: list[Tensor], round_: Tensor, finite: Tensor) -> Tensor:
        """Sends what has changed since the variables were read; returns the time at which it was known."""
        counters, moved = self._counters, list[tuple[Variable, Tensor]]()
        for v, before, now in zip(self._copies.variables, read, self._copies.values(), strict=True):
            if id(v) in self._added:
                change = now - before
                moved.append((v, tf.cast(change, tf.bfloat16) if id(v) in self._small else change))
            elif id(v) in self._replaced:
                moved.append((v, now))
        ready = step_time.arrived([value for _, value in moved])
        there = []
        for v, value in moved:
            with tf.device(v.value.device):
                there.append(tf.identity(value))

        def apply() -> bool:
            for (v, _), value in zip(moved, there, strict=True):
                with tf.device(v.value.device):
                    if id(v) in self._added:
                        v.value.assign_add(tf.cast(value, v.dtype), read_value=False)
                    else:
                        v.value.assign(value, read_value=False)
            return True

        device = keras_private.step_counter(self._state.optimizer).value.device
        apply_if(
            lambda round_, finite: tf.equal(round_, counters.round) & finite,
            [round_, finite],
            counters.begun,
            counters.ended,
            device,
            there,
            apply,
        )
        return ready


def _is_float(variable: Variable) -> bool:
    return bool(tf.as_dtype(variable.dtype).is_floating)
