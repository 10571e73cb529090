"""A TensorFlow server for ps and ps-workers through the C API: ready in 0.4 s instead of 4.

`tf.distribute.Server` is a thin wrapper of TF_NewServer (tensorflow/c/c_api.h), but importing it imports all
of TensorFlow's Python, which such a task does not need: the coordinator sends it graphs. A server cannot be
stopped (GrpcServer::Stop is unimplemented), so it is never joined; the process is killed instead.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from trainer.job.cluster import Task, graph_cluster, job_of
from trainer.job.errors import TrainerError
from trainer.job.spec import JobSpec
from trainer.sockets import port_in_use
from trainer.training.private import tensorflow_private


def load() -> None:
    """Loads what `start` needs, which is most of its time: a standby has it."""
    tensorflow_private.c_libraries()
    tensorflow_private.new_server_definition()


def start(spec: JobSpec, task: Task, threads: int, on_listen: Callable[[], None]) -> None:
    """Starts the server that TF_CONFIG describes for this task, in threads of its own.

    Args:
        on_listen: called when the server listens, but before it answers.

    Raises:
        UserError: the port is taken.
        TrainerError: any other error of TensorFlow.
    """
    framework, library = tensorflow_private.c_libraries()
    library.TF_NewServer.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]
    library.TF_NewServer.restype = ctypes.c_void_p
    library.TF_ServerStart.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    status = framework.TF_NewStatus()
    definition = _server_definition(spec, task, threads)
    server = library.TF_NewServer(definition, len(definition), status)
    if framework.TF_GetCode(status) == 0:
        on_listen()
        library.TF_ServerStart(server, status)
    if framework.TF_GetCode(status) != 0:
        reason = framework.TF_Message(status).decode(errors="replace")
        if "Could not start gRPC server" in reason:
            raise port_in_use(task)
        raise TrainerError(f"TensorFlow's server for {task.name} does not start: {reason}")


def _server_definition(spec: JobSpec, task: Task, threads: int) -> bytes:
    servers_job = job_of(spec, task.type)
    definition = tensorflow_private.new_server_definition(job_name=servers_job, task_index=task.index, protocol="grpc")
    for job_name, addresses in graph_cluster(spec, task).items():
        job = definition.cluster.job.add(name=job_name)
        for index, address in enumerate(addresses):
            job.tasks[index] = address
    config = definition.default_session_config
    config.intra_op_parallelism_threads = threads
    # Fewer threads than workers + 1 can deadlock a ps (TensorFlow's parameter server tutorial).
    config.inter_op_parallelism_threads = max(threads, len(task.cluster["worker"]) + 1)
    config.device_count["CPU"] = spec.tasks.of(task.type).cpu_devices
    return bytes(definition.SerializeToString())
