"""The environment of a task's child: of trainer's own, and of the user's program."""

from __future__ import annotations

import os
from pathlib import Path

from trainer.job import environment, program
from trainer.job.cluster import Task
from trainer.job.data import variables
from trainer.job.derived import hidden_gpus
from trainer.job.spec import JobSpec
from trainer.protocol.log_lines import FAILURE_MARK

_FAST = {
    # Off by default where the CPU has no AVX-512 (tensorflow/core/util/util.cc), though convolutions gain there too.
    "TF_ENABLE_ONEDNN_OPTS": "1",
    # glibc returns each freed large tensor to the kernel, and gets new, zeroed pages at the next step.
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(2**26),
}
"""Variables that TensorFlow and glibc read at a process's start; the user's own take precedence (decision 23)."""
_ALIKE = {"PYTHONHASHSEED": "0"}
"""A set of names has another order in each process: tasks whose model() creates a layer for each name would add up the
gradients of different layers."""
_OURS = {
    environment.JOB, environment.SET, environment.CLUSTER, environment.PARENT, environment.CPUS, environment.RESTARTS,
    environment.CODE, environment.LOGS, environment.CONTROL_PORT, environment.HOST_PATH, environment.CODE_SHA256,
    environment.HANDS_OVER,
    FAILURE_MARK,
}  # fmt: skip
"""Variables of the supervisor, which a program does not get."""


def of_child(task: Task) -> dict[str, str]:
    """The environment of trainer's own child, but for the spec's variables: see `settings`."""
    return {
        "TF_CPP_MIN_LOG_LEVEL": "1",
        **_FAST,
        **_ALIKE,
        **os.environ,
        **environment.BACKEND,  # a user may have another one for other programs, also in ~/.keras/keras.json
        "TF_CONFIG": task.tf_config(),
        environment.PARENT: str(os.getpid()),
        **_no_proxy(task),
    }


def settings(spec: JobSpec, task: Task) -> dict[str, str]:
    """The spec's environment variables for trainer's own child."""
    return {**hidden_gpus(spec, task.type), **program.variables(spec, task.type, os.environ)}


def of_program(spec: JobSpec, task: Task) -> dict[str, str]:
    """The environment of a task's program, but for what differs from run to run."""
    environ = {
        "PYTHONUNBUFFERED": "1",
        **hidden_gpus(spec, task.type),
        **{name: value for name, value in os.environ.items() if name not in _OURS},
        **_no_proxy(task),
        "TF_CONFIG": task.tf_config(),
        environment.TASK_TYPE: task.type,
        environment.TASK_INDEX: str(task.index),
        environment.PS_HOSTS: ",".join(task.cluster.get("ps", ())),
        environment.WORKER_HOSTS: ",".join(task.cluster.get("worker", ())),
        **variables(spec.data),
        environment.MODEL_DIR: str(Path(spec.directory).absolute()),
    }
    return program.environ(spec, task.type, environ)


def _no_proxy(task: Task) -> dict[str, str]:
    """The variable without which gRPC would send the cluster's traffic through an HTTP proxy."""
    return {"no_grpc_proxy": ",".join(sorted({a.rpartition(":")[0] for group in task.cluster.values() for a in group}))}
