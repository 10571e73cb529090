"""From a spec to its tf.distribute.Strategy, except parameter_server, whose coordinator has its own needs."""

from __future__ import annotations

import ctypes
import socket
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.distribute import collective_all_reduce_strategy
from tensorflow.python.framework import errors_impl

from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.names import split_address
from trainer.job.spec import JobSpec
from trainer.job.tf_config import Task
from trainer.training.loops import tf_server

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
"""So that the large layers, whose gradients come first, are on their way while the small ones are computed."""
TPU_PORT = 8470
TPU_SECONDS = 10.0
"""To reach the address of a TPU; TensorFlow itself would wait for minutes and not say for what."""


def make(spec: JobSpec, task: Task) -> Any:
    """The strategy, with as many replicas as the spec says; before any TensorFlow operation.

    Raises:
        UserError: the address of a TPU is none.
        TrainerError: Exit.DEVICES, if there is no such TPU, or it has another number of cores.
    """
    return _MAKERS[spec.strategy](spec, task)


def compute_devices(spec: JobSpec, task: Task) -> list[str]:
    """Devices of this task that hold a replica each: those of the spec, or its GPUs, or its CPUs."""
    if spec.devices is not None:
        return spec.devices
    group = spec.tasks.of(task.type)
    kind, count = ("GPU", group.gpus) if group.gpus else ("CPU", group.cpu_devices)
    return [f"{kind}:{i}" for i in range(1 if spec.traits.replicas == "one" else count)]


def _multi_worker_mirrored(spec: JobSpec, task: Task) -> Any:
    count, packed = spec.tasks.of(task.type).cpu_devices, spec.communication.bytes_per_pack
    if count > 1:
        _use_cpu_devices(count)
    if task.on_loopback:
        pywrap_tfe.TFE_EnableCollectiveOps = _enable_collectives
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=_COMMUNICATION[spec.communication.implementation],
        bytes_per_pack=BYTES_PER_PACK if packed is None else packed,
    )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as error:
        if "must be configured at program startup" not in str(error):  # context.py
            raise
        raise UserError(
            f"workload: {spec.workload}: a module that it imports runs TensorFlow operations, which must not be before "
            "the strategy is made; import that module inside model() or data()"
        ) from None


def _mirrored(spec: JobSpec, task: Task) -> Any:
    operations = _CROSS_DEVICE_OPS.get(spec.communication.implementation)
    return tf.distribute.MirroredStrategy(compute_devices(spec, task), cross_device_ops=operations and operations())


def _central_storage(spec: JobSpec, task: Task) -> Any:
    return tf.distribute.experimental.CentralStorageStrategy(compute_devices(spec, task), parameter_device="CPU:0")


def _one_device(spec: JobSpec, task: Task) -> Any:
    return tf.distribute.OneDeviceStrategy(compute_devices(spec, task)[0])


def _use_cpu_devices(count: int) -> None:
    """The strategy takes all GPUs, but of CPUs the first only; there is no public way to tell it otherwise."""

    def local_devices(_: Any, __: Any, worker_device: str) -> tuple[tuple[str, ...], str]:
        return tuple(f"{worker_device}/device:CPU:{i}" for i in range(count)), "CPU"

    collective_all_reduce_strategy.CollectiveAllReduceExtended._initialize_local_devices = local_devices


def _enable_collectives(context: Any, definition: bytes) -> None:
    """TFE_EnableCollectiveOps, which starts the server and waits for the peers, without the GIL.

    TensorFlow's own binding holds it meanwhile (tfe_wrapper.cc), so that no thread could close the port (loopback.py).
    """
    framework, library = tf_server.load_libraries(Path(tf.__file__).parent)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    enable = library.TFE_EnableCollectiveOps
    enable.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]
    enable.restype = None
    status = framework.TF_NewStatus()
    enable(pointer(context, None), definition, len(definition), status)
    if code := framework.TF_GetCode(status):
        message = framework.TF_Message(status).decode(errors="replace")
        raise errors_impl.exception_type_from_error_code(code)(None, None, message)


def _tpu(spec: JobSpec, _task: Task) -> Any:
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
    "multi_worker_mirrored": _multi_worker_mirrored,
    "mirrored": _mirrored,
    "central_storage": _central_storage,
    "one_device": _one_device,
    "tpu": _tpu,
}
"""Of the strategies that the loop `sync` and fit train."""
