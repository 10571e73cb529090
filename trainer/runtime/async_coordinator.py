"""ParameterServer training: the chief schedules closures of K steps; any worker may run any of them.

Exactly the requested number of steps is applied, whatever dies. Steps are handed out in rounds, from one checkpoint to
the next: a step needs one of the round's tickets, and its update counts itself in the optimizer's `iterations`, which
is the only count of steps that there is. When all of a round's closures have ended nothing moves, and the variables
are the state at the step that `iterations` names. Tickets that died with their worker are handed out again.

The counters live on a ps and are only ever added to atomically (Keras' own are not: assign(self + 1), keras#18668).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.job.derived import batch_sizes
from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.job.tf_config import Task
from trainer.runtime import inputs, training
from trainer.runtime.channel import Channel
from trainer.runtime.curve import Curve
from trainer.runtime.finish import Saver, finish, raise_if_not_finite
from trainer.runtime.lines import progress_line, start_line
from trainer.runtime.training import Load, Setup, Trainable
from trainer.workloads.workload import Shard

POLL_SECONDS = 0.2
FIRST_POLL_SECONDS = 0.02
DRAIN_POLL_SECONDS = 0.002
CLOSURES_AHEAD = 64
"""Per worker: deep enough to outlast a poll, far below the coordinator's 262,144."""
DRAIN_SECONDS = 3.0
"""How long a stop waits for steps under way; a worker that is gone would be waited for up to an hour."""


class Counters:
    """The job's counters, on a ps."""

    def __init__(self, workers: int, figures: int) -> None:
        # The plain optimizer variables are spread over the ps the same way: by the strategy's round-robin.
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.taken = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=first)
        """The last ticket that was taken; a ticket is the number of a step."""
        self.last = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=first)
        """The round's last ticket: no later one is honoured."""
        self.worker_steps = tf.Variable(np.zeros(workers, np.int64), trainable=False, aggregation=first)
        # Row per worker: the ticket whose loss was not finite (0: none), then loss and metrics of its last closure.
        self.rows = tf.Variable(np.zeros((workers, 1 + figures)), trainable=False, aggregation=first)


def run(spec: JobSpec, task: Task, load: Load, _resume_step: int, channel: Channel) -> None:
    """Trains to the end, or until asked to stop; then saves, evaluates, exports and reports.

    Raises:
        UserError, TrainerError: with the exit code of the job.
        tf.errors.OpError: a ps was lost.
    """
    _make_keras_counters_atomic()
    strategy = make_strategy()
    setup = load()
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    workers = task.counts["worker"]
    source = setup.split(Shard("train", 0, workers, spec.train.seed))
    with strategy.scope():
        trainable = training.build(setup)
        if not trainable.model.trainable_variables:
            raise UserError(
                f"workload: {setup.workload.name}: model() has no trainable variables; nothing can be trained"
            )
        warnings = training.check(setup, trainable.model, source)
        total = training.total_steps(setup, source)
        step, broken = training.restore(setup, trainable, total)
        counters = Counters(workers, 1 + len(setup.metrics))
    for line in [*warnings, *broken]:
        channel.tell("line", text=line)
    channel.tell("start", step=step, steps=total, line=start_line(spec, task, strategy.num_replicas_in_sync, step))
    iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset(setup, source, step)))
    closure = _make_closure(setup, strategy, trainable, counters, channel)
    rounds = _Rounds(
        setup=setup,
        channel=channel,
        trainable=trainable,
        counters=counters,
        coordinator=coordinator,
        schedule=lambda: coordinator.schedule(closure, args=(iterator,)),
        watch=_Watch(setup, channel, counters, step, total),
    )
    _train(rounds, step, total)


def make_strategy() -> Any:
    """Of the cluster in TF_CONFIG; waits for its servers."""
    return tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())


def _train(rounds: _Rounds, step: int, total: int) -> None:
    """A round after the other, each with its checkpoint, until `total` steps are applied or the job is to stop."""
    setup, channel = rounds.setup, rounds.channel
    every = setup.spec.train.checkpoint_steps
    saver = Saver(setup, rounds.trainable, channel)
    setup.begin()
    while step < total and not channel.stopping.is_set():
        last = min(total, (step // every + 1) * every)
        step, stood_still = rounds.run(step, last)
        if step >= last or channel.stopping.is_set():
            saver.save(step, since=stood_still)
        else:
            why = "skipped (float16)" if setup.spec.train.mixed_precision == "float16" else "lost with their worker"
            channel.tell("line", text=f"{last - step} steps were {why}, and are run again")
    setup.end(step)
    saver.wait()
    if step < total:
        channel.tell("stopped", step=step)
    else:
        finish(setup, rounds.trainable.values(), channel, step, rounds.pace(step))


@dataclass
class _Rounds:
    """What it takes to run the steps from one checkpoint to the next."""

    setup: Setup
    channel: Channel
    trainable: Trainable
    counters: Counters
    coordinator: Any
    schedule: Callable[[], Any]
    watch: _Watch
    _first_step: tuple[float, int] | None = None

    def run(self, step: int, last: int) -> tuple[int, float]:
        """Hands out the tickets after `step` to `last`, and waits until no closure runs any more.

        Returns:
            The step that was reached, and since when workers had nothing to do.
        """
        workers, per_call = self.setup.task.counts["worker"], self.setup.spec.train.steps_per_call
        # One closure more for each further worker: at the end of a round all of them take single steps.
        scheduled, enough = step, last + (workers - 1) * per_call
        begun, looked, taken, spent = time.perf_counter(), 0.0, step, 0.0
        self.counters.taken.assign(step)
        self.counters.last.assign(last)
        while scheduled < enough or not self.coordinator.done():  # done() raises what a closure or a dead ps raised
            if self.channel.stopping.is_set():
                return self._drain()
            now = time.perf_counter()
            if not spent:
                taken = int(self.counters.taken.numpy())
                spent = now if taken >= last else 0.0
            while scheduled < enough and scheduled - taken < CLOSURES_AHEAD * workers * per_call:
                self.schedule()
                scheduled += per_call
            if now - looked > POLL_SECONDS:
                looked = now
                self._look()
            # As the end of the round comes closer it is looked for more often.
            rate = (taken - step) / (now - begun)
            time.sleep(
                min(max((last - taken) / rate / 2, DRAIN_POLL_SECONDS), POLL_SECONDS) if rate else FIRST_POLL_SECONDS
            )
        return self._look(), spent or time.perf_counter()

    def _drain(self) -> tuple[int, float]:
        """Ends the round before its end: no more tickets, and a while for the steps under way."""
        begun = time.perf_counter()
        self.counters.last.assign(0)
        while not self.coordinator.done() and time.perf_counter() - begun < DRAIN_SECONDS:
            time.sleep(DRAIN_POLL_SECONDS)
        return self._look(), begun

    def _look(self) -> int:
        step = int(self.trainable.optimizer.iterations.numpy())
        self.watch.look(step)
        if self._first_step is None and self.watch.moved:
            self._first_step = (time.perf_counter(), step)
        return step

    def pace(self, step: int) -> tuple[float, int]:
        """Seconds and steps since the first step was seen."""
        if self._first_step is None:
            return 0.0, 0
        then, first = self._first_step
        return time.perf_counter() - then, step - first


def per_worker_dataset(setup: Setup, source: inputs.Source, step: int) -> Any:
    """A function that gives a worker's endless batches, to be called on that worker."""
    spec, workers = setup.spec, setup.task.counts["worker"]
    if setup.workload.train_spec is not None:
        # A first look at its batches, which a graph that is sent to a worker does not have.
        setup.training(source, shards=workers, index=0, local=1, start=0)

    @tf.autograph.experimental.do_not_convert
    def dataset() -> Any:
        index = tf.cast(tf.distribute.coordinator.experimental_get_current_worker_index(), tf.int32)
        mine = source
        if source.dataset is not None:
            mine = setup.split(Shard("train", tf.cast(index, tf.int64), workers, spec.train.seed))
        return setup.training(mine, shards=workers, index=index, local=1, start=step // workers)

    return dataset


def _make_closure(setup: Setup, strategy: Any, trainable: Trainable, counters: Counters, channel: Channel) -> Any:
    """Up to K steps on whichever worker runs it, while there are tickets."""
    one_step = training.make_step(setup, trainable, 1)
    width = 1 + len(setup.metrics)

    def one_ticket(iterator: Any, done: Any, bad: Any, sums: Any) -> Any:
        """Whether there was a ticket for a step; done, the ticket of a bad loss and the sums of figures after it."""
        counters.taken.assign_add(1)
        # Two who add at once may read the same: then one ticket fewer is honoured than there are, never one more.
        ticket = counters.taken.read_value()

        def train() -> Any:
            figures = strategy.run(one_step, (next(iterator),))
            finite = tf.math.is_finite(figures[0])
            # No more tickets for anybody: nothing is gained, and the step told is the first that went wrong.
            tf.cond(finite, counters.last.read_value, lambda: counters.last.assign(0, read_value=True))
            return True, done + 1, tf.where(finite, bad, ticket), sums + figures

        return tf.cond(ticket > counters.last, lambda: (False, done, bad, sums), train)

    # autograph=False: converting this and the data set's function took 1.2 s of every start (DECISIONS 12).
    @tf.function(autograph=False)
    def closure(iterator: Any) -> None:
        # Not inside a branch: a value that differs per worker can only be captured at the top (2.21).
        worker = tf.cast(tf.distribute.coordinator.experimental_get_current_worker_index(), tf.int32)
        _, done, bad, sums = tf.while_loop(
            lambda more, *_: more,
            lambda _, *so_far: one_ticket(iterator, *so_far),
            (True, tf.constant(0, tf.int64), tf.constant(0, tf.int64), tf.zeros([width])),
            maximum_iterations=setup.spec.train.steps_per_call,
            parallel_iterations=1,
        )

        def told() -> Any:
            means = tf.cast(sums, tf.float64) / tf.cast(done, tf.float64)
            row = tf.concat([[tf.cast(bad, tf.float64)], means], 0)
            tf.raw_ops.ResourceScatterUpdate(resource=counters.rows.handle, indices=worker, updates=row)
            tf.raw_ops.ResourceScatterAdd(resource=counters.worker_steps.handle, indices=worker, updates=done)
            return True

        tf.cond(done > 0, told, lambda: False)
        channel.tell("traced")  # this is Python, and runs once: when the graph is made

    return closure


class _Watch:
    """Reads the workers' rows now and then: says where they are, writes the curve, stops at a bad loss."""

    def __init__(self, setup: Setup, channel: Channel, counters: Counters, step: int, total: int) -> None:
        self._setup, self._channel, self._counters, self._total = setup, channel, counters, total
        self._curve = Curve(setup.spec.directory, "metrics", step)
        self._names = ["loss", *setup.metrics]
        self._batch = batch_sizes(setup.spec, setup.task.counts)[1]
        self._logged = (time.perf_counter(), step, np.zeros(setup.task.counts["worker"], np.int64))
        self._step = step
        self.moved = False

    def look(self, step: int) -> None:
        # A bad row follows its step, and stops all further ones: it is looked for while nothing moves, too.
        rows = self._counters.rows.numpy()
        if len(bad := rows[rows[:, 0] > 0]):
            first = bad[bad[:, 0].argmin()]
            raise_if_not_finite(first[1:2], int(first[0]) - 1)
        if step == self._step:
            return
        self.moved = True
        self._step, worker_steps = step, self._counters.worker_steps.numpy()
        now, (then, since, steps_then) = time.perf_counter(), self._logged
        rates = (worker_steps - steps_then) * self._batch / (now - then)
        workers = {
            f"worker:{i}": {
                "step": int(worker_steps[i]),
                "examples_per_second": float(rates[i]),
                **dict(zip(self._names, row[1:].tolist(), strict=True)),
            }
            for i, row in enumerate(rows)
            if worker_steps[i]
        }
        means = np.mean([rows[i, 1:] for i in range(len(rows)) if worker_steps[i]] or [rows[0, 1:]], axis=0)
        figures = dict(zip(self._names, means.tolist(), strict=True))
        figures["examples_per_second"] = (step - since) * self._batch / (now - then)
        self._channel.tell("step", step=step, **figures, workers=workers)
        self._setup.after_run(step, self._names, means)
        every = self._setup.spec.train.log_steps
        if step // every > since // every or step == self._total:
            self._logged = (now, step, worker_steps)
            self._curve.add(step, figures, workers=workers)
            self._channel.tell("line", text=progress_line(step, self._total, figures, workers))


def _make_keras_counters_atomic() -> None:
    """Keras' `iterations.assign_add(1)` reads, adds and writes: two workers lose counts. TensorFlow's own
    AssignAddVariableOp is atomic on the ps. Private API: keras is pinned, and a test counts."""
    variable = keras.src.backend.tensorflow.core.Variable

    def assign_add(self: Any, value: Any) -> Any:
        return self._value.assign_add(tf.cast(value, self._value.dtype))

    variable.assign_add = assign_add
