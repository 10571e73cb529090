"""Creates the tf.distribute.Strategy of a spec."""

from __future__ import annotations

import socket

import tensorflow as tf

from trainer.job.cluster import Task
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.names import split_address
from trainer.job.spec import JobSpec
from trainer.training.private import tensorflow_patches
from trainer.training.private.one_of_many import Others, one_of_many
from trainer.training.runtime import connections
from trainer.workloads.types import Strategy

_COMMUNICATION = {
    # "auto" is RING unless the session config asks for NCCL, which eager mode never does
    # (collective_param_resolver_local.cc); on GPUs NCCL has to be named.
    "auto": tf.distribute.experimental.CommunicationImplementation.AUTO,
    "ring": tf.distribute.experimental.CommunicationImplementation.RING,
    "nccl": tf.distribute.experimental.CommunicationImplementation.NCCL,
}
_CROSS_DEVICE_OPS = {
    "nccl": tf.distribute.NcclAllReduce,
    "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    "reduction_to_one_device": tf.distribute.ReductionToOneDevice,
}
BYTES_PER_PACK = 2**21
"""Lets the gradients of large layers, which are computed first, be sent while those of small ones are computed."""
TPU_PORT = 8470
TPU_SECONDS = 10.0
"""Timeout for connecting to a TPU; TensorFlow itself would wait for minutes without a message."""


def bytes_per_pack(spec: JobSpec) -> int:
    """Bytes of gradients that are sent together; 0: all."""
    wanted = spec.communication.bytes_per_pack
    return BYTES_PER_PACK if wanted is None else wanted


def make(spec: JobSpec, task: Task, others: Others | None = None) -> Strategy:
    """Creates the strategy, with the spec's number of replicas; to be called before any TensorFlow operation. In a
    cluster it waits for the servers, unless it is given the other processes.

    Raises:
        UserError: the address of a TPU is not valid.
        TrainerError: Exit.DEVICES, if there is no such TPU, or it has another number of cores.
    """
    with tensorflow_patches.making_the_strategy():
        if others is not None:
            return one_of_many(others)
        return _MAKERS[spec.strategy](spec, task)


def compute_devices(spec: JobSpec, task: Task) -> list[str]:
    """Devices of this task that each hold a replica: those in the spec, or its GPUs, or its CPUs."""
    if spec.devices is not None:
        return spec.devices
    group = spec.tasks.of(task.type)
    kind, count = ("GPU", group.gpus) if group.gpus else ("CPU", group.cpu_devices)
    return [f"{kind}:{i}" for i in range(1 if spec.traits.replicas == "one" else count)]


def _multi_worker_mirrored(spec: JobSpec, task: Task) -> Strategy:
    count = spec.tasks.of(task.type).cpu_devices
    if count > 1:
        tensorflow_patches.use_cpu_devices(count)
    if task.on_loopback:
        tensorflow_patches.start_collectives_without_the_gil()
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=_COMMUNICATION[spec.communication.implementation],
        bytes_per_pack=bytes_per_pack(spec),
    )
    if not task.is_chief:
        connections.until_they_listen([task.cluster[task.chief[0]][task.chief[1]]])
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as error:
        if "must be configured at program startup" not in str(error):  # context.py
            raise
        raise UserError(
            f"workload: {spec.workload}: a module that it imports runs TensorFlow operations, which must not be before "
            "the strategy is made; import that module inside model() or data()"
        ) from None
    tensorflow_patches.create_variables_alone(strategy)
    return strategy


def _parameter_server(_spec: JobSpec, task: Task) -> Strategy:
    connections.until_they_listen(address for group in ("ps", "worker") for address in task.cluster[group])
    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    tensorflow_patches.place_by_bytes(strategy)
    return strategy


def _mirrored(spec: JobSpec, task: Task) -> Strategy:
    operations = _CROSS_DEVICE_OPS.get(spec.communication.implementation)
    return tf.distribute.MirroredStrategy(compute_devices(spec, task), cross_device_ops=operations and operations())


def _central_storage(spec: JobSpec, task: Task) -> Strategy:
    return tf.distribute.experimental.CentralStorageStrategy(compute_devices(spec, task), parameter_device="CPU:0")


def _one_device(spec: JobSpec, task: Task) -> Strategy:
    return tf.distribute.OneDeviceStrategy(compute_devices(spec, task)[0])


def _tpu(spec: JobSpec, _task: Task) -> Strategy:
    # The order is that of the TPU guide: resolve, connect, initialize (which clears the TPU's memory), build.
    address = spec.tpu.address
    _require_reachable(address)
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        why = " ".join(str(error).split())[:200]
        raise TrainerError(f"tpu.address: {address!r}: there is no TPU that can be used: {why}", Exit.DEVICES) from None
    if strategy.num_replicas_in_sync != spec.tpu.cores:
        there = strategy.num_replicas_in_sync
        raise TrainerError(f"tpu.cores: {spec.tpu.cores}: the TPU has {there}; set tpu.cores={there}", Exit.DEVICES)
    return strategy


def _require_reachable(address: str) -> None:
    if not address.startswith("grpc://"):
        return
    try:
        rest = address.removeprefix("grpc://")
        host, port = split_address(rest if ":" in rest else f"{rest}:{TPU_PORT}")
    except ValueError as error:
        raise UserError(f"tpu.address: grpc://{error}") from None
    try:
        with socket.create_connection((host, port), TPU_SECONDS):
            return
    except OSError as error:
        why = error.strerror or "no answer"
        raise TrainerError(
            f"tpu.address: {address!r}: cannot be reached within {TPU_SECONDS:g} s: {why}", Exit.DEVICES
        ) from None


_MAKERS = {
    "parameter_server": _parameter_server,
    "multi_worker_mirrored": _multi_worker_mirrored,
    "mirrored": _mirrored,
    "central_storage": _central_storage,
    "one_device": _one_device,
    "tpu": _tpu,
}
