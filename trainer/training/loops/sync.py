"""Synchronous training on the devices of one or several tasks, with a loop of our own: Keras 3's fit fails under
MultiWorkerMirrored (keras#20585).

Steps run inside the graph, up to `steps_per_call` at a time. One small all-reduce at the end of each call
carries the losses, the metrics, the pace and stop requests, so that all workers stop after the same step. If steps are
slow a call has fewer of them, the same number on all workers, because a stop waits for the end of a call.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import tensorflow as tf

from trainer.job.cluster import Task
from trainer.job.spec import JobSpec
from trainer.protocol import events
from trainer.protocol.log_lines import start_line
from trainer.protocol.orders import Go
from trainer.training.callbacks.epochs import Cluster, Epochs, Share
from trainer.training.exchange import averages, compression, gradients, ring_sums, step_time
from trainer.training.exchange.ring_connections import form, listener
from trainer.training.loops import fitting
from trainer.training.loops.position import Position
from trainer.training.loops.progress import Progress, Result
from trainer.training.loops.rounds import Rounds, local, make_outer, steps_left
from trainer.training.loops.time_spent import InputTime
from trainer.training.model import batches
from trainer.training.model.checks import check, require_data_to_evaluate
from trainer.training.model.divergence import raise_if_not_finite
from trainer.training.model.evaluation import require_copies
from trainer.training.model.loss_scale import raise_if_stuck, skipped
from trainer.training.model.state import TrainState, build_state, prepare
from trainer.training.model.step import Step, make_step
from trainer.training.outputs.finish import Trained
from trainer.training.outputs.saver import Saver
from trainer.training.private import keras_patches, keras_private, tensorflow_patches
from trainer.training.runtime import created_variables
from trainer.training.runtime.channel import Channel
from trainer.training.runtime.strategy import bytes_per_pack, make
from trainer.training.task import Load, TrainingTask
from trainer.training.weights.agreement import (
    require_same_data,
    require_same_files,
    require_same_rows,
    require_same_variables,
)  # fmt: skip
from trainer.training.weights.equality import make_require_equal
from trainer.training.weights.restore import restore_everywhere
from trainer.training.weights.untracked import adopt
from trainer.workloads.types import Dataset, Strategy, Tensor

CALL_SHARE = 0.25
"""Maximum share of deadlines.stop for a call of more than one step; the rest is for the checkpoint."""


def run(spec: JobSpec, task: Task, load: Load, go: Go, channel: Channel) -> None:
    """Trains to the end, or until asked to stop; the chief saves, evaluates, exports and reports.

    Raises:
        UserError, TrainerError: with the exit code of the job.
        tf.errors.OpError: a peer was lost.
    """
    keras_patches.draw_by_replica()
    tensorflow_patches.draw_by_replica(go.resume_step)
    ring = form(task, go.ring, listener(), spec.deadlines.start) if go.ring else None
    others = ring_sums.others(ring, bytes_per_pack(spec) or sys.maxsize) if ring else None
    strategy = make(spec, task, others)
    job = replace(load(), ring=ring)
    with strategy.scope():
        state = build_state(job)

    def train(job: TrainingTask) -> Trained:
        return _run(strategy, job, state, go.resume_step, channel)

    fitting.run(job, state, train, channel)


def _run(strategy: Strategy, job: TrainingTask, state: TrainState, resume_step: int, channel: Channel) -> Trained:
    spec, task, source = job.spec, job.task, job.training
    warnings = [*state.warnings, *check(job, state.model, source)]
    require_same_files(job)
    with strategy.scope():
        warnings += prepare(strategy, job, state, source)
        state.outer = make_outer(spec.communication.outer, state.model)
    total = job.total_steps(source)
    require_same_data(job, source, total)
    require_same_variables(job, state)
    step = restore_everywhere(strategy, job, state, total, channel, resume_step)
    if step == 0:
        require_data_to_evaluate(job, state.model)
    channel.send(events.Start(step=step, steps=total, line=start_line(spec, task, strategy.num_replicas_in_sync, step)))
    for line in warnings if task.is_chief else ():
        channel.send(events.Line(line))

    job.begin()
    iterator = iter(batches.synchronous(strategy, job, source, step + (skipped(state.optimizer) or 0)))
    with strategy.scope():
        batch = batches.replica_spec(job, source)
        made = make_step(strategy, job, state, batch)
        rounds = Rounds(strategy, spec, state)
    graphs = _make_graphs(strategy, job, state, made, channel, Position(channel, step))
    # Before callbacks see the model: the trace shows which variables a step uses.
    graphs[local(spec.communication, step)].get_concrete_function(iterator, *_arguments(1, 0.0))
    if task.is_chief:
        require_copies(job, state.untracked)
    call = _make_call(job, graphs, iterator, rounds)
    saver = Saver(job, state, channel) if task.is_chief else None
    progress = Progress(job, made, channel, InputTime(source), step, total)
    average_layers = averages.make_average_of_layers(strategy, state.model, state.untracked.values())

    def average() -> None:
        rounds.end()
        for each in state.optimizers.values():
            compression.forget(keras_private.inner(each))
        average_layers()

    epochs = None
    if job.workload.callbacks is not None:
        cluster, steps = Cluster(strategy.scope, _make_share(job), average), job.steps_in_epoch(source)
        epochs = Epochs(job, state, made, channel, cluster, batch, steps=steps, step=step, total=total)
    require_equal = make_require_equal(strategy, job, state)

    def make_equal(step: int) -> None:
        (epochs.average if epochs else average)()
        require_equal(step)

    step, stopped = _train(job, state, call, progress, make_equal, saver, epochs)
    job.end(step)
    weights = epochs.end() if epochs and not stopped else None
    if saver:
        saver.wait()
    return Trained(step, stopped, progress.pace(step), epochs.reason if epochs else None, weights)


def _train(
    job: TrainingTask,
    state: TrainState,
    call: _Call,
    progress: Progress,
    make_equal: Callable[[int], None],
    saver: Saver | None,
    epochs: Epochs | None,
) -> tuple[int, bool]:
    """Makes calls until the end; returns the last step, and whether the job was asked to stop before its end."""
    train, stop_seconds = job.spec.train, job.spec.deadlines.stop
    step, total, stopped, count, own_pace = progress.step, progress.total, False, 1, 0.0

    def save() -> None:
        make_equal(step)
        if saver:
            saver.save(step, epochs=epochs.saved() if epochs else None)

    while step < total and not stopped:
        if epochs and not epochs.goes_on():
            break
        if epochs:
            count = min(count, epochs.left())
        if saver:
            saver.raise_failure()
        called = time.perf_counter()
        result = call(step, count, own_pace)
        _raise_if_diverged(result, step, job)
        done = int(result.applied.sum())
        step += done
        raise_if_stuck(state.optimizer, step)
        stopped = result.stop
        own_pace = progress.called(step, count, time.perf_counter() - called, result)
        if done:
            job.after_run(step, progress.figures(result.own, done * job.local_replicas))
            progress.add(step, done, result)
        if epochs:
            epochs.add(step, done, result.sums, done * job.replicas, stopping=stopped)
        due = done and step % train.checkpoint_steps == 0
        if stopped or (done and step == total) or (due and not (epochs and epochs.ends())):
            save()
        count = min(_until_next_boundary(step, total, job.spec), _affordable(result.pace, stop_seconds))
        if not job.ring and gradients.rows_vary(state.optimizers.values()):
            count = 1
        if result.pace > stop_seconds:
            progress.warn_of_slow_steps(result.pace)
    if epochs and (epochs.over or epochs.asked):
        save()
    return step, (stopped and step < total) or bool(epochs and epochs.asked)


def _make_share(job: TrainingTask) -> Share:
    """Sends values from the chief to all tasks. They wait for a validation on the chief."""
    if len(job.task.members()) == 1:
        return lambda _, values: values
    return lambda use, values: job.from_chief(values, use)


def _until_next_boundary(step: int, total: int, spec: JobSpec) -> int:
    """Steps of the next call, which ends at a checkpoint, a log line or the end of the job."""
    rounds = [steps_left(spec.communication, step)] if spec.communication.every > 1 else []
    ends = (
        total - step,
        *rounds,
        *(every - step % every for every in (spec.train.checkpoint_steps, spec.train.log_steps)),
    )
    return max(1, min(spec.train.steps_per_call, *ends))


def _affordable(pace: float, stop: float) -> int:
    """Steps of a call for this pace (seconds per step; 0: not known yet), the same on all workers."""
    return max(1, int(CALL_SHARE * stop / pace)) if pace else 1


_Call = Callable[[int, int, float], Result]
"""A function from the last step, the number of steps to attempt and this task's seconds per step to the result of a
call."""


_Graphs = dict[bool, tf.types.experimental.PolymorphicFunction]
"""The graphs of calls: by whether the steps are of a replica alone."""


def _make_graphs(
    strategy: Strategy, job: TrainingTask, state: TrainState, step: Step, channel: Channel, position: Position
) -> _Graphs:
    wish = _wish_to_stop(channel)
    return {
        alone: _make_graph(strategy, job, state, step, channel, position, wish, alone=alone) for alone in (False, True)
    }


def _arguments(count: int, own_pace: float) -> tuple[Tensor, Tensor]:
    """Those of a graph, beside the iterator."""
    return tf.constant(count), tf.constant(own_pace, tf.float32)


def _make_call(job: TrainingTask, graphs: _Graphs, iterator: Iterator[Dataset], rounds: Rounds) -> _Call:
    def call(last: int, count: int, own_pace: float) -> Result:
        alone = rounds.begin(last)
        tensors = graphs[alone](iterator, *_arguments(count, own_pace))
        losses, applied, sums, own, stop, *seconds = (tensor.numpy() for tensor in tensors)
        pace, longest_wait, waited, exchanged = map(float, np.hstack(seconds))
        averaged = rounds.end_at(last + count)
        exchanged = averaged if alone else exchanged  # steps of a replica alone have no exchange that has a clock
        return Result(
            losses[:count], applied[:count], sums, own, float(stop) > 0, pace, longest_wait, waited, exchanged
        )

    return call


def _make_graph(
    strategy: Strategy,
    job: TrainingTask,
    state: TrainState,
    step: Step,
    channel: Channel,
    position: Position,
    wish: tf.Variable,
    *,
    alone: bool,
) -> tf.types.experimental.PolymorphicFunction:
    """A graph that attempts `count` steps. It returns the global loss of each step and whether it was applied, the
    sums over the applied steps, this task's own, the number of replicas to stop, all workers' mean `pace`, the
    seconds for which that task waited for data whose steps waited longest: the others wait for it; and the seconds for
    which this one waited for data, and those of its exchange with the others."""
    replicas, own_replicas = float(job.replicas), float(job.local_replicas)
    longest, tasks = job.spec.train.steps_per_call, job.part.shards

    # autograph=False: converting this and what it calls took 0.5 s of every recovery (decision 12).
    @tf.function(autograph=False)
    def call(iterator: Iterator[Dataset], count: Tensor, pace: Tensor) -> tuple[Tensor, ...]:
        graph = tf.compat.v1.get_default_graph()

        def one(
            i: Tensor, losses: Tensor, applied: Tensor, sums: Tensor, spent: Tensor, free: Tensor
        ) -> tuple[Tensor, ...]:
            batch = next(iterator)
            there = step_time.arrived(batch)
            position.arrived(batch)
            with step_time.added() as work, gradients.alone(alone):
                ran, loss, vector = map(strategy.experimental_local_results, strategy.run(step.run, (batch,)))
            end = work.completed()
            position.made(work, end)
            kept = ran[0]  # the same on all replicas
            losses = tf.tensor_scatter_nd_update(losses, [[i]], [tf.add_n(loss) / own_replicas])
            applied = tf.tensor_scatter_nd_update(applied, [[i]], [kept])
            added = tf.add_n(vector)
            spent += tf.stack([tf.maximum(there - free, 0.0), work.exchanged()])
            return i + 1, losses, applied, sums + tf.where(kept, added, tf.zeros_like(added)), spent, end

        begin = (
            0, tf.zeros([longest]), tf.zeros([longest], tf.bool), tf.zeros([step.width]), tf.zeros([2], tf.float64),
            step_time.now(),
        )  # fmt: skip
        _, losses, applied, own, spent, end = tf.while_loop(lambda i, *_: i < count, one, begin)
        with tf.control_dependencies([losses]):
            stop = wish.read_value()
        waits = tf.one_hot(job.part.index, tasks) * tf.cast(spent[0], tf.float32)
        vector = tf.concat([losses, own / own_replicas, [stop, pace], waits], 0)
        ready = step_time.after([vector, end])
        reduced = _all_reduce(strategy, tf.distribute.ReduceOp.SUM, vector)
        exchanged = tf.maximum(step_time.after([reduced]) - ready, 0.0)
        spent = step_time.measured(tf.tensor_scatter_nd_add(spent, [[1]], [exchanged]))
        sums = reduced[longest : longest + step.width]
        # This is Python, and runs once: when the graph is made.
        require_same_rows(job, state)
        adopt(job, state, graph)
        channel.send(events.Traced())
        stop, pace = reduced[longest + step.width], reduced[longest + step.width + 1] / replicas
        longest_wait = tf.reduce_max(reduced[-tasks:]) / own_replicas
        return reduced[:longest] / replicas, applied, sums, own, stop, pace, longest_wait, spent

    return call


def _wish_to_stop(channel: Channel) -> tf.Variable:
    """1 once this task is to stop. A variable, not an argument, because the order may arrive during a call."""
    wish = created_variables.own(0.0)

    def follow() -> None:
        channel.stopping.wait()
        wish.assign(1.0)

    threading.Thread(target=follow, daemon=True).start()
    return wish


def _raise_if_diverged(result: Result, step: int, job: TrainingTask) -> None:
    """Checks the result of a call after `step`.

    Raises:
        TrainerError: Exit.DIVERGED, naming the step.
    """
    first = int(np.argmin(np.isfinite(result.losses)))  # 0 if all are finite: nothing is raised then
    raise_if_not_finite(result.losses[first:], step + int(result.applied[:first].sum()), job.training)


def _all_reduce(strategy: Strategy, operation: tf.distribute.ReduceOp, vector: Tensor) -> Tensor:
    """Reduces over all replicas; to be called inside a tf.function. Local replicas hold copies of one vector."""

    def reduce(mine: Tensor) -> Tensor:
        context = tf.distribute.get_replica_context()
        # identity places the tensor on the replica's device: without a device, "destinations can not be empty".
        return context.all_reduce(operation, tf.identity(mine))

    return strategy.experimental_local_results(strategy.run(reduce, (vector,)))[0]
