"""ParameterServer training: the chief schedules closures of K steps; any worker may run any of them.

Exactly the requested number of steps is applied, whoever dies: a step needs a ticket from `claimed`, counts
itself in `applied` when its update is done, and no ticket above `limit` is honoured. Tickets that died with
their worker are handed out again at the end. All three counters live on a ps and are only ever added to
atomically (Keras' own counters are not: assign(self + 1), keras#18668).
"""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.job.derived import batch_sizes
from trainer.runtime import inputs, training
from trainer.runtime.channel import Channel
from trainer.runtime.curve import Curve
from trainer.runtime.finish import Saver, finish, raise_if_not_finite
from trainer.runtime.lines import progress_line, start_line
from trainer.runtime.training import Setup, Trainable
from trainer.workloads.workload import Shard

POLL_SECONDS = 0.2
CLOSURES_AHEAD = 64
"""Per worker: deep enough to outlast a poll, far below the coordinator's 262,144."""
DRAIN_SECONDS = 3.0
"""How long a stop waits for steps under way; a worker that is gone would be waited for up to an hour."""


class Counters:
    """The job's counters, on a ps."""

    def __init__(self, step: int, total: int, workers: int, figures: int) -> None:
        # The plain optimizer variables are spread over the ps the same way: by the strategy's round-robin.
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.claimed = tf.Variable(step, dtype=tf.int64, trainable=False, aggregation=first)
        self.applied = tf.Variable(step, dtype=tf.int64, trainable=False, aggregation=first)
        self.limit = tf.Variable(total, dtype=tf.int64, trainable=False, aggregation=first)
        self.worker_steps = tf.Variable(np.zeros(workers, np.int64), trainable=False, aggregation=first)
        # Row per worker: the ticket whose loss was not finite (0: none), then loss and metrics of its last closure.
        self.rows = tf.Variable(np.zeros((workers, 1 + figures)), trainable=False, aggregation=first)


def run(setup: Setup, _resume_step: int, channel: Channel) -> None:
    """Trains to the end, or until asked to stop; then saves, evaluates, exports and reports.

    Raises:
        UserError, TrainerError: with the exit code of the job.
        tf.errors.OpError: a ps was lost.
    """
    spec, task = setup.spec, setup.task
    training.prepare_process(setup)
    _make_keras_counters_atomic()
    strategy = make_strategy()
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    workers = task.counts["worker"]
    source = setup.split(Shard("train", 0, workers, spec.train.seed))
    with strategy.scope():
        trainable = training.build(setup)
        total = training.total_steps(setup, source)
        step, broken = training.restore(setup, trainable, total)
        counters = Counters(step, total, workers, 1 + len(setup.metrics))
    for line in broken:
        channel.tell("line", text=line)
    channel.tell("start", step=step, steps=total, line=start_line(spec, task, strategy.num_replicas_in_sync, step))
    begun = _train(setup, channel, coordinator, strategy, trainable, counters, source, step, total)
    if begun is not None:
        finish(setup, trainable.values(), channel, total, begun)


def make_strategy() -> Any:
    """Of the cluster in TF_CONFIG; waits for its servers."""
    return tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())


def _train(
    setup: Setup,
    channel: Channel,
    coordinator: Any,
    strategy: Any,
    trainable: Trainable,
    counters: Counters,
    source: inputs.Source,
    step: int,
    total: int,
) -> tuple[float, int] | None:
    """Keeps the workers fed until `total` steps are applied; None if asked to stop before."""
    spec = setup.spec
    iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset(setup, source, step)))
    closure = _make_closure(setup, strategy, trainable, counters, channel)
    setup.begin()
    watch = _Watch(setup, channel, counters, step, total)
    saver = Saver(setup, trainable, channel)
    saved, scheduled, begun = step, step, None
    ahead = CLOSURES_AHEAD * setup.task.counts["worker"] * spec.train.steps_per_call
    while (applied := int(counters.applied.numpy())) < total:
        if channel.stopping.is_set():
            _stop(setup, channel, coordinator, counters, saver)
            return None
        claimed = int(counters.claimed.numpy())
        # Read again when nothing runs any more: what was read before may be older than the last closures' end.
        if claimed >= total and coordinator.done() and (applied := int(counters.applied.numpy())) < total:
            channel.tell("line", text=f"{total - applied} steps were lost with their worker, and are run again")
            counters.claimed.assign(applied)
            claimed = scheduled = applied
        while scheduled < total and scheduled - claimed < ahead:
            coordinator.schedule(closure, args=(iterator,))
            scheduled += spec.train.steps_per_call
        watch.look(applied)
        if begun is None and applied > step:
            begun = (time.perf_counter(), applied)
        if applied // spec.train.checkpoint_steps > saved // spec.train.checkpoint_steps:
            saver.save(applied)
            saved = applied
        # done() raises what a closure or a dead ps raised.
        coordinator.done()
        time.sleep(POLL_SECONDS if begun else POLL_SECONDS / 10)
    watch.look(total)
    setup.end(total)
    coordinator.join()
    saver.save(total)
    saver.wait()
    return (time.perf_counter() - begun[0], total - begun[1]) if begun else (0.0, 0)


def _stop(setup: Setup, channel: Channel, coordinator: Any, counters: Counters, saver: Saver) -> None:
    counters.limit.assign(0)
    deadline = time.monotonic() + DRAIN_SECONDS
    while not coordinator.done() and time.monotonic() < deadline:
        time.sleep(0.02)
    step = int(counters.applied.numpy())
    setup.end(step)
    saver.save(step)
    saver.wait()
    channel.tell("stopped", step=step)


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
        counters.claimed.assign_add(1)
        ticket = counters.claimed.read_value()

        def train() -> Any:
            figures = strategy.run(one_step, (next(iterator),))
            counters.applied.assign_add(1)
            finite = tf.math.is_finite(figures[0])
            # No more tickets for anybody: nothing is gained, and the step told is the first that went wrong.
            tf.cond(finite, counters.limit.read_value, lambda: counters.limit.assign(0, read_value=True))
            return True, done + 1, tf.where(finite, bad, ticket), sums + figures

        return tf.cond(ticket > counters.limit, lambda: (False, done, bad, sums), train)

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

    def look(self, step: int) -> None:
        # A bad row follows its step, and stops all further ones: it is looked for while nothing moves, too.
        rows = self._counters.rows.numpy()
        if len(bad := rows[rows[:, 0] > 0]):
            first = bad[bad[:, 0].argmin()]
            raise_if_not_finite(first[1:2], int(first[0]) - 1)
        if step == self._step:
            return
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
