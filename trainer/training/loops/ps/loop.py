"""ParameterServer training: the chief schedules closures of K steps; any worker may run any of them.

Exactly the requested number of steps is applied, whichever tasks die. Steps are issued in rounds, from one checkpoint
to the next: a step needs one of the round's tickets, and its update increments the optimizer's `iterations`, the
only count of steps. When all closures of a round have ended, no update is in progress, and the variables are the state
at the step in `iterations`. Tickets that were lost with their worker are issued again.

The counters live on a ps and are only ever added to atomically (Keras' own are not: assign(self + 1), keras#18668).
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from trainer.job.cluster import Task
from trainer.job.spec import JobSpec
from trainer.protocol import events
from trainer.protocol.log_lines import start_line
from trainer.protocol.orders import Go
from trainer.training.callbacks.epochs import Cluster, Epochs
from trainer.training.loops import fitting
from trainer.training.loops.ps import closures, local_rounds
from trainer.training.loops.ps.counters import Counters, Reading
from trainer.training.loops.ps.silent_workers import SilentWorkers
from trainer.training.loops.ps.watch import Watch
from trainer.training.loops.time_spent import InputTime
from trainer.training.model import batches
from trainer.training.model.checks import check, require_data_to_evaluate
from trainer.training.model.evaluation import require_copies
from trainer.training.model.loss_scale import LossScale, raise_if_stuck
from trainer.training.model.state import TrainState, build_state, prepare
from trainer.training.model.step import make_step
from trainer.training.outputs.finish import Trained
from trainer.training.outputs.saver import Saver
from trainer.training.private import keras_patches, keras_private, tensorflow_patches, tensorflow_private
from trainer.training.runtime.channel import Channel
from trainer.training.runtime.strategy import make
from trainer.training.task import Load, TrainingTask
from trainer.training.weights.restore import restore
from trainer.training.weights.untracked import OF_FILE, candidates, read_by_data, usable
from trainer.workloads.types import Optimizer, Tensor

COUNTERS_POLL_SECONDS = 0.2
"""Seconds between two reads of the counters on a ps."""
FIRST_STEP_POLL_SECONDS = 0.02
"""The same until a first step was seen."""
UPDATES_POLL_SECONDS = 0.002
"""Seconds between two looks whether the last steps of a round have ended."""
CLOSURES_AHEAD = 64
"""Queued closures per worker: enough for the time between polls, far below the coordinator's 262,144."""
STOP_SECONDS = 3.0
"""Maximum wait of a stop for steps in progress; without it a lost worker could delay the stop for an hour."""
UPDATES_SECONDS = 10.0
"""Maximum wait at the end of a round for updates in progress, which by then depend on the ps only."""


def run(spec: JobSpec, task: Task, load: Load, _go: Go, channel: Channel) -> None:
    """Trains to the end, or until asked to stop; then saves, evaluates, exports and reports.

    Raises:
        UserError, TrainerError: with the exit code of the job.
        tf.errors.OpError: a ps was lost.
    """
    keras_patches.make_counters_atomic()
    keras_patches.look_up_rows_only()
    tensorflow_patches.capture_at_the_top()
    tensorflow_patches.keep_functions()
    if not spec.train.deterministic:  # for which TensorFlow demands seeds
        tensorflow_patches.draw_by_replica(0, seeded=False)
    strategy = make(spec, task)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with tensorflow_private.tables_on_each_worker(strategy):  # of layers at the top of the file
        job = load()
    with strategy.scope():
        state = build_state(job)

    def train(job: TrainingTask) -> Trained:
        return _run(coordinator, job, state, channel)

    fitting.run(job, state, train, channel)


def _run(
    coordinator: tf.distribute.coordinator.ClusterCoordinator,
    job: TrainingTask,
    state: TrainState,
    channel: Channel,
) -> Trained:
    strategy, spec, task, source = coordinator.strategy, job.spec, job.task, job.training
    with strategy.scope():
        warnings = [*state.warnings, *check(job, state.model, source), *prepare(strategy, job, state, source)]
    total = job.total_steps(source)
    step, broken = restore(strategy, job, state, total)
    # Before a step is traced, which the coordinator does once the first is scheduled: of what model() has created.
    possible = candidates(job, state).items()
    state.untracked = {name: v for name, v in possible if not name.startswith(OF_FILE) and usable(v)}
    state.untracked |= read_by_data(job, state)
    require_copies(job, state.untracked)
    with strategy.scope():
        batch = batches.replica_spec(job, source)
        made = make_step(strategy, job, state, batch)
        applied = keras_private.step_counter(state.optimizer).value
        with strategy.extended.colocate_vars_with(applied):
            counters = Counters(task.counts["worker"], made.width)
        read = counters.reader(applied)
    if step == 0:
        require_data_to_evaluate(job, state.model)
    for line in [*warnings, *broken]:
        channel.send(events.Line(line))
    channel.send(events.Start(step=step, steps=total, line=start_line(spec, task, strategy.num_replicas_in_sync, step)))
    # Runs during every wait for a worker: in a round, a stop, and the evaluation, whose graphs use all workers.
    silent = SilentWorkers(task.cluster["worker"])
    threading.Thread(target=silent.keep_cut_off, args=(channel,), daemon=True).start()
    reached = functools.partial(_batches_reached, state.optimizer, applied)
    iterator = iter(coordinator.create_per_worker_dataset(batches.per_worker(strategy, job, source, reached)))
    make_closure = local_rounds.make_closure if spec.communication.every > 1 else closures.make_closure
    closure = make_closure(job, strategy, state, made, counters, channel)
    rounds = _Rounds(
        job=job,
        channel=channel,
        state=state,
        counters=counters,
        coordinator=coordinator,
        schedule=lambda: coordinator.schedule(closure, args=(iterator,)),
        read=read,
        watch=Watch(job, made, channel, InputTime(source), step, total),
    )
    epochs = None
    if job.workload.callbacks is not None:
        cluster, steps = Cluster(strategy.scope, lambda _, values: values, lambda: None), job.steps_in_epoch(source)
        epochs = Epochs(job, state, made, channel, cluster, batch, steps=steps, step=step, total=total)
    return _train(rounds, epochs, step, total)


def _batches_reached(optimizer: Optimizer, applied: tf.Variable) -> Tensor:
    """The batches of all workers so far, those that float16 skips too."""
    skips = keras_private.tf_variable(optimizer.skipped) if isinstance(optimizer, LossScale) else 0
    return tf.cast(applied, tf.int64) + tf.cast(skips, tf.int64)


def _train(rounds: _Rounds, epochs: Epochs | None, step: int, total: int) -> Trained:
    """Runs rounds, which end at checkpoints and epochs, until `total` steps are applied or the job is to stop."""
    job, channel = rounds.job, rounds.channel
    every = job.spec.train.checkpoint_steps
    saver = Saver(job, rounds.state, channel)
    job.begin()
    stopping = channel.stopping.is_set()
    while step < total and not stopping and (epochs is None or epochs.goes_on()):
        saver.raise_failure()
        before, last = step, min(total, (step // every + 1) * every, step + epochs.left() if epochs else total)
        step, stood_still = rounds.run(step, last)
        stopping = channel.stopping.is_set()
        if step < last and not stopping:
            why = "skipped (float16)" if job.spec.train.mixed_precision == "float16" else "lost with their worker"
            channel.send(events.Line(f"{last - step} steps were {why}, and are run again"))
        if epochs:
            sums, count = rounds.counters.take()
            epochs.add(step, step - before, sums, count, stopping=stopping)
        due = step >= last and step % every == 0
        if stopping or step == total or (due and not (epochs and epochs.ends())):
            saver.save(step, since=None if epochs else stood_still, epochs=epochs.saved() if epochs else None)
    ended_well = (step >= total or bool(epochs and epochs.over)) and not (epochs and epochs.asked)
    if epochs and step < total and not stopping:
        saver.save(step, epochs=epochs.saved())
    job.end(step)
    weights = epochs.end() if epochs and ended_well else None
    saver.wait()
    return Trained(step, not ended_well, rounds.pace(step), epochs.reason if epochs else None, weights)


@dataclass
class _Rounds:
    """Runs the steps from one checkpoint to the next."""

    job: TrainingTask
    channel: Channel
    state: TrainState
    counters: Counters
    coordinator: tf.distribute.coordinator.ClusterCoordinator
    schedule: Callable[[], object]
    read: Callable[[], Reading]
    watch: Watch
    _first_step: tuple[float, int] | None = None

    def run(self, step: int, last: int) -> tuple[int, float]:
        """Issues the tickets after `step` up to `last`, and waits until no closure is running.

        Returns:
            The step that was reached, and the time since which workers have been idle.
        """
        workers, spec = self.job.task.counts["worker"], self.job.spec
        per_call = spec.communication.every if spec.communication.every > 1 else spec.train.steps_per_call
        # One closure more for each further worker: at the end of a round all of them take single steps.
        scheduled, enough = step, last + (workers - 1) * per_call
        begun, looked, taken, spent = time.perf_counter(), 0.0, step, 0.0
        self.counters.taken.assign(step)
        self.counters.last.assign(last)
        while scheduled < enough or not self.coordinator.done():  # done() raises what a closure or a dead ps raised
            if self.channel.stopping.is_set():
                return self._drain()
            now = time.perf_counter()
            # A stop saves nothing before a step was seen: the first one is looked for more often.
            due = now - looked > (COUNTERS_POLL_SECONDS if self.watch.moved else FIRST_STEP_POLL_SECONDS)
            if due or not spent:
                reading = self.read()
            if not spent:
                taken = reading.taken
                spent = now if taken >= last else 0.0
            while scheduled < enough and scheduled - taken < CLOSURES_AHEAD * workers * per_call:
                self.schedule()
                scheduled += per_call
            if due:
                looked = now
                self._look(reading)
            # Polls more often as the end of the round approaches.
            rate = (taken - step) / (now - begun)
            time.sleep(
                min(max((last - taken) / rate / 2, UPDATES_POLL_SECONDS), COUNTERS_POLL_SECONDS)
                if rate and self.watch.moved
                else FIRST_STEP_POLL_SECONDS
            )
        return self._end(), spent or time.perf_counter()

    def _drain(self) -> tuple[int, float]:
        """Ends the round early: issues no more tickets, and waits a while for the steps in progress."""
        begun = time.perf_counter()
        self.counters.last.assign(0)
        while not self.coordinator.done() and time.perf_counter() - begun < STOP_SECONDS:
            time.sleep(UPDATES_POLL_SECONDS)
        return self._end(), begun

    def _end(self) -> int:
        """Invalidates the tickets still held, waits for the updates already in progress, then counts.

        Raises:
            tf.errors.AbortedError: an update does not end, so the variables are not a consistent state.
        """
        self.counters.round.assign_add(1)
        deadline = time.perf_counter() + UPDATES_SECONDS
        while under_way := self.counters.under_way():
            if time.perf_counter() > deadline:
                raise tf.errors.AbortedError(None, None, f"{under_way} updates of a lost worker were applied in part")
            time.sleep(UPDATES_POLL_SECONDS)
        return self._look(self.read())

    def _look(self, reading: Reading) -> int:
        step = reading.step
        self.watch.look(reading)
        raise_if_stuck(self.state.optimizer, step)
        if self._first_step is None and self.watch.moved:
            self._first_step = (time.perf_counter(), step)
        return step

    def pace(self, step: int) -> tuple[float, int]:
        """Seconds and steps since the first step was seen."""
        if self._first_step is None:
            return 0.0, 0
        then, first = self._first_step
        return time.perf_counter() - then, step - first
