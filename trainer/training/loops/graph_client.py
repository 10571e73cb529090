"""A graph job's client: connects to the servers and runs the workload's compute(), which places work on them."""

from __future__ import annotations

import json
from collections.abc import Callable

import tensorflow as tf

from trainer import host
from trainer.job.cluster import Task, graph_cluster
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.spec import JobSpec
from trainer.protocol import events
from trainer.protocol.log_lines import start_line
from trainer.protocol.orders import Go
from trainer.training.runtime import devices
from trainer.training.runtime.channel import Channel
from trainer.workloads.cluster import Cluster
from trainer.workloads.workload import Graph


def prepare_process(spec: JobSpec, task: Task) -> None:
    """Sets thread counts and hides GPUs, before the first TensorFlow operation."""
    devices.limit_threads(host.cpus(spec.tasks.of(task.type).cpu))
    tf.config.set_visible_devices([], "GPU")


def run(spec: JobSpec, task: Task, load: Callable[[], Graph], _go: Go, channel: Channel) -> None:
    """Runs compute() once; its return value becomes the job's result.

    Raises:
        UserError: it did not return a dict that JSON can represent.
        TrainerError: Exit.DEVICES, if it named a device that does not exist.
        tf.errors.OpError: a server was lost.
    """
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec(graph_cluster(spec, task)), job_name=task.type, task_index=task.index
    )
    tf.config.list_logical_devices()  # connects now; the call above only defers that to the first operation
    graph = load()
    channel.send(events.Start(step=0, line=start_line(spec, task, 1, 0)))
    cluster = Cluster(
        job_name=spec.job_name,
        tasks=task.counts["worker"],
        say=lambda text: channel.send(events.Line(text)),
        progress=lambda done: channel.send(events.Step(step=done)),
    )
    try:
        result = graph.compute(cluster)
    except tf.errors.InvalidArgumentError as error:
        if "unknown device" not in str(error):  # tf.device accepts any name
            raise
        text = f"{error.message.rstrip('.')}; there are: {', '.join(cluster.devices())}"
        raise TrainerError(f"workload: {graph.name}: {text}", Exit.DEVICES) from None
    if not isinstance(result, dict):
        raise UserError(f"workload: {graph.name}: compute() must give a dict, gave {type(result).__name__}")
    try:
        json.dumps(result)
    except (TypeError, ValueError) as error:
        raise UserError(f"workload: {graph.name}: compute() gave what JSON cannot hold: {error}") from None
    channel.send(events.Done(result=result))
