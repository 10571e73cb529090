"""Synchronous training, on the devices of one task or of many, with a loop of our own: Keras 3's fit is broken under
MultiWorkerMirrored (keras#20585).

Steps run inside the graph, up to `steps_per_call` at a time. One small all-reduce at the end of each call
carries the losses, the metrics, the pace and the wish to stop, so that all workers stop after the same step. Where
steps are slow a call has fewer of them, the same number on all workers: a stop waits for the end of a call.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.job.derived import batch_sizes
from trainer.job.spec import JobSpec
from trainer.job.tf_config import Task
from trainer.model_dir import checkpoint
from trainer.protocol.log_lines import progress_line, start_line
from trainer.training import inputs, layer_state
from trainer.training import task as training
from trainer.training.channel import Channel
from trainer.training.loss_scale import raise_if_stuck, skipped
from trainer.training.outputs.curve import Curve
from trainer.training.outputs.finish import Saver, finish, raise_if_not_finite
from trainer.training.strategy import make
from trainer.training.task import Load, Setup, Trainable
from trainer.workloads.workload import Shard

_BROADCAST_KEY = 2**30
"""Apart from the keys of TensorFlow's own collectives, which count up from 1 (cross_device_utils.py)."""
_BROADCAST_WORDS = 2**26
"""In one message, of 4 bytes each: gRPC takes 2 GB at most."""
CALL_SHARE = 0.25
"""Of deadlines.stop that a call takes at most, if it has more than one step: the rest is for the checkpoint."""
TELL_SECONDS = 0.1
"""A small model takes a thousand steps a second; nobody looks that often."""


def run(spec: JobSpec, task: Task, load: Load, resume_step: int, channel: Channel) -> None:
    """Trains to the end, or until asked to stop; the chief saves, evaluates, exports and reports.

    Raises:
        UserError, TrainerError: with the exit code of the job.
        tf.errors.OpError: a peer was lost.
    """
    strategy = make(spec, task)
    setup = load()
    with strategy.scope():
        trainable = training.build(setup)
    workers = len(task.members())
    local = strategy.num_replicas_in_sync // workers
    source = own_split(setup)
    warnings = training.check(setup, trainable.model, source)
    total = training.total_steps(setup, source)
    step = restore_everywhere(strategy, setup, trainable, total, channel) if resume_step else 0
    channel.tell("start", step=step, steps=total, line=start_line(spec, task, strategy.num_replicas_in_sync, step))
    for line in warnings if task.is_chief else ():
        channel.tell("line", text=line)

    batch = batch_sizes(spec, task.counts)[1]
    setup.begin()
    iterator = iter(own_batches(strategy, setup, source, step + skipped(trainable.optimizer)))
    call = _make_call(strategy, setup, trainable, channel)
    average = layer_state.make_average(strategy, trainable.model)
    saver = Saver(setup, trainable, channel) if task.is_chief else None
    curve = Curve(spec.directory, "metrics", step) if task.is_chief else None
    names = ["loss", *setup.metrics]
    begun, logged, stopped, count = None, (time.perf_counter(), step), False, 1
    window, tell_at, own_pace, warned = np.zeros(len(names)), 0.0, 0.0, False
    while step < total and not stopped:
        called = time.perf_counter()
        losses, applied, means, local_means, stop, pace = call(iterator, count, own_pace)
        losses, applied = losses.numpy()[:count], applied.numpy()[:count]
        _raise_if_diverged(losses, applied, step)
        done = int(applied.sum())
        step += done
        raise_if_stuck(trainable.optimizer, step)
        stopped = float(stop) > 0
        now = time.perf_counter()
        own_pace = (now - called) / count if begun else 0.0  # Unknown: the first call traced the graph.
        begun = begun or (now, step)
        rate = (step - logged[1]) * batch * local / (now - logged[0])
        window += means.numpy() * done
        if done:
            setup.after_run(step, names, local_means)
        if done and (now >= tell_at or stopped or step == total):
            own = dict(zip(names, local_means.numpy().tolist(), strict=True))
            channel.tell("step", step=step, **own, examples_per_second=rate)
            tell_at = now + TELL_SECONDS
        if done and (step % spec.train.log_steps == 0 or step == total or stopped):
            if curve:
                figures = dict(zip(names, (window / (step - logged[1])).tolist(), strict=True))
                figures["examples_per_second"] = rate * workers
                curve.add(step, {**figures, "step_loss": float(losses[applied][-1])})
                channel.tell("line", text=progress_line(step, total, figures))
            logged, window = (now, step), np.zeros(len(names))
        if stopped or (done and (step % spec.train.checkpoint_steps == 0 or step == total)):
            average()
            if saver:
                saver.save(step)
        count = min(_until_next_boundary(step, total, spec), _affordable(float(pace), spec.deadlines.stop))
        if float(pace) > spec.deadlines.stop and task.is_chief and not warned:
            seconds = f"a step takes {float(pace):.1f} s, longer than deadlines.stop ({spec.deadlines.stop:g} s)"
            channel.tell("line", text=f"{seconds}: SIGTERM cannot save a checkpoint; raise deadlines.stop")
            warned = True
    setup.end(step)
    if saver:
        saver.wait()
    if stopped and step < total:
        channel.tell("stopped", step=step)
        return
    elapsed = (time.perf_counter() - begun[0], step - begun[1]) if begun else (0.0, 0)
    finish(setup, trainable.values(), channel, step, elapsed)


def own_split(setup: Setup) -> inputs.Source:
    """The training data as this task sees them: all of them, or a workload's own part for it."""
    position, workers = _place(setup.task)
    return setup.split(Shard("train", position, workers, setup.spec.train.seed))


def own_batches(strategy: Any, setup: Setup, source: inputs.Source, start: int) -> Any:
    """This task's endless batches from step `start` on, handed out to its replicas."""
    position, workers = _place(setup.task)
    local = strategy.num_replicas_in_sync // workers
    return strategy.distribute_datasets_from_function(
        lambda _: setup.training(source, shards=workers, index=position, local=local, start=start)
    )


def _place(task: Task) -> tuple[int, int]:
    """Which of the tasks that train this is, and how many there are."""
    members = task.members()
    return members.index((task.type, task.index)), len(members)


def _until_next_boundary(step: int, total: int, spec: JobSpec) -> int:
    """Steps of the next call: they end together with a checkpoint, a log line or the job."""
    ends = (total - step, *(every - step % every for every in (spec.train.checkpoint_steps, spec.train.log_steps)))
    return max(1, min(spec.train.steps_per_call, *ends))


def _affordable(pace: float, stop: float) -> int:
    """Steps of a call by their seconds each, 0 if these are not known yet; all workers use the same."""
    return max(1, int(CALL_SHARE * stop / pace)) if pace else 1


def _make_call(strategy: Any, setup: Setup, trainable: Trainable, channel: Channel) -> Any:
    """A graph that tries `count` steps: gives each one's global loss and whether it was applied, the means over those
    that were, this task's own, the number of replicas that want to stop, and the mean of all workers' `pace`."""
    replicas = strategy.num_replicas_in_sync
    longest = setup.spec.train.steps_per_call
    step = training.make_step(setup, trainable, replicas)
    width = 1 + len(setup.metrics)
    # A variable, and no argument, for the wish may come while the call runs.
    wish = tf.Variable(0.0, trainable=False)

    def follow() -> None:
        channel.stopping.wait()
        wish.assign(1.0)

    threading.Thread(target=follow, daemon=True).start()

    # autograph=False: converting this and what it calls took 0.5 s of every recovery (decision 12).
    @tf.function(autograph=False)
    def call(iterator: Any, count: Any, pace: Any) -> Any:
        def one(i: Any, losses: Any, applied: Any, sums: Any) -> Any:
            ran, figures = strategy.run(step, (next(iterator),))
            results = strategy.experimental_local_results(figures)
            mean = tf.add_n(results) / float(len(results))
            kept = strategy.experimental_local_results(ran)[0]  # All replicas have decided alike.
            losses = tf.tensor_scatter_nd_update(losses, [[i]], [mean[0]])
            applied = tf.tensor_scatter_nd_update(applied, [[i]], [kept])
            return i + 1, losses, applied, sums + tf.where(kept, mean, tf.zeros_like(mean))

        begin = (0, tf.zeros([longest]), tf.zeros([longest], tf.bool), tf.zeros([width]))
        _, losses, applied, sums = tf.while_loop(lambda i, *_: i < count, one, begin)
        own = tf.math.divide_no_nan(sums, tf.reduce_sum(tf.cast(applied, tf.float32)))
        with tf.control_dependencies([losses]):
            stop = wish.read_value()
        vector = tf.concat([losses, own, [stop, pace]], 0)
        reduced = _all_reduce(strategy, tf.distribute.ReduceOp.SUM, vector)
        means = reduced[longest : longest + width] / float(replicas)
        channel.tell("traced")  # this is Python, and runs once: when the graph is made
        return reduced[:longest] / float(replicas), applied, means, own, reduced[-2], reduced[-1] / float(replicas)

    return lambda iterator, count, pace: call(iterator, tf.constant(count), tf.constant(pace, tf.float32))


def _raise_if_diverged(losses: Any, applied: Any, step: int) -> None:
    """Looks at what a call after `step` gave.

    Raises:
        TrainerError: Exit.DIVERGED, naming the step.
    """
    first = int(np.argmin(np.isfinite(losses)))  # 0 if there is none: nothing is raised then.
    raise_if_not_finite(losses[first:], step + int(applied[:first].sum()))


def _all_reduce(strategy: Any, operation: Any, vector: Any) -> Any:
    """Over all replicas; to be called inside a tf.function. Local replicas hold copies of one vector."""

    def reduce(mine: Any) -> Any:
        context = tf.distribute.get_replica_context()
        # identity puts the tensor on the replica's device: without one, "destinations can not be empty".
        return context.all_reduce(operation, tf.identity(mine))

    return strategy.experimental_local_results(strategy.run(reduce, (vector,)))[0]


def restore_everywhere(strategy: Any, setup: Setup, trainable: Trainable, total: int, channel: Channel) -> int:
    """The chief reads the checkpoint; step and values reach the others through the cluster."""
    values, step = None, 0
    if setup.task.is_chief:
        step, values, broken = training.newest_values(setup, trainable, total)
        for line in broken:
            channel.tell("line", text=line)
    shared = values or trainable.values()
    if len(setup.task.members()) > 1:
        everything = {"step": np.array(step, np.int64), **shared}
        shared = _from_chief(everything, setup.task, setup.spec.deadlines.progress)
        step = int(shared.pop("step"))
    with strategy.scope():
        trainable.assign(shared)
    return step


def _from_chief(values: checkpoint.Values, task: Task, seconds: float) -> checkpoint.Values:
    """The chief's values, on every task: the bits of all of them one after the other, in few broadcasts."""
    raw = b"".join(v.tobytes() for v in values.values())
    bits = np.frombuffer(raw + bytes(-len(raw) % 4), np.int32)
    pieces = [_broadcast(piece, i, task, seconds) for i, piece in enumerate(_cut(bits))]
    shared, offset, result = np.concatenate(pieces), 0, {}
    for name, v in values.items():
        result[name] = np.frombuffer(shared, v.dtype, v.size, offset).reshape(v.shape)
        offset += v.nbytes
    return result


def _cut(bits: Any) -> list[Any]:
    return np.array_split(bits, range(_BROADCAST_WORDS, len(bits), _BROADCAST_WORDS))


def _broadcast(bits: Any, number: int, task: Task, seconds: float) -> Any:
    common: dict[str, Any] = {
        "group_size": len(task.members()),
        "group_key": _BROADCAST_KEY,
        "instance_key": _BROADCAST_KEY + number,
        "shape": bits.shape,
        "timeout_seconds": seconds,
    }
    with tf.device("CPU:0"):
        if task.is_chief:
            return tf.raw_ops.CollectiveBcastSend(input=bits, **common).numpy()
        return tf.raw_ops.CollectiveBcastRecv(T=tf.int32, **common).numpy()
