"""Numbers that follow from a spec and the counts of its tasks."""

from __future__ import annotations

import math

from trainer.job.names import TaskType
from trainer.job.spec import JobSpec

DEFAULT_STEPS = 1000
ONE_TASK = ("mirrored", "central_storage", "one_device", "tpu")
"""Strategies whose replicas are the devices of one task."""
COORDINATED = ("parameter_server", "graph")
"""Strategies whose chief sends graphs to its workers, and computes nothing itself."""
TF_KERAS_FITS = ("multi_worker_mirrored", "parameter_server", "central_storage")
"""Under these Keras 3's fit fails (keras#20585, keras#18624, AggregatingVariable), and that of tf_keras works."""
# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def batch_rule(spec: JobSpec, counts: dict[TaskType, int]) -> str | None:
    """The rule that the global batch size breaks in a cluster of these counts, if it does."""
    batch, replicas = spec.train.global_batch_size, replicas_in_sync(spec, counts)
    if batch is None or batch % replicas == 0:
        return None
    lower, upper = batch // replicas * replicas, (batch // replicas + 1) * replicas
    nearest = f"{lower} or {upper}" if lower else str(upper)
    return f"must be divisible by the {replicas} replicas in sync; the nearest that are: {nearest}"


def rate_rule(spec: JobSpec, counts: dict[TaskType, int]) -> str | None:
    """Why a table of learning rates has none for these counts, if that is so."""
    rates, (batch, _) = spec.train.learning_rates, batch_sizes(spec, counts)
    if rates is None or batch in rates:
        return None
    return f"has no rate for the global batch size {batch}; it has {', '.join(map(str, sorted(rates)))}"


def replicas_in_sync(spec: JobSpec, counts: dict[TaskType, int]) -> int:
    """Model copies whose gradients make one step (`num_replicas_in_sync`), for a cluster of these counts."""
    if spec.strategy in ("parameter_server", "one_device", "graph"):
        return 1
    if spec.strategy == "tpu":
        return spec.tpu.cores
    if spec.devices is not None:
        return len(spec.devices)
    worker = spec.tasks.worker
    return (counts.get("chief", 0) + counts.get("worker", 0)) * (worker.gpus or worker.cpu_devices)


def batch_sizes(spec: JobSpec, counts: dict[TaskType, int]) -> tuple[int, int]:
    """(global, per replica) batch size: examples in one step, and in one replica's part of it."""
    replicas = replicas_in_sync(spec, counts)
    if spec.train.global_batch_size is not None:
        return spec.train.global_batch_size, spec.train.global_batch_size // replicas
    per_replica = spec.train.batch_size or 64
    return per_replica * replicas, per_replica


def is_server(spec: JobSpec, task_type: str) -> bool:
    """Whether such a task only serves graphs that its chief sends: no TensorFlow in Python is needed."""
    return spec.strategy in COORDINATED and task_type in ("ps", "worker")


def uses_tf_keras(spec: JobSpec) -> bool:
    """Whether tf.keras has to be tf_keras (Keras 2) in this job, and not Keras 3."""
    return spec.api == "keras_fit" and spec.strategy in TF_KERAS_FITS


def learning_rate(spec: JobSpec, counts: dict[TaskType, int]) -> float:
    """The optimizer's rate: of the table, or after scaling by the replicas in sync."""
    if spec.train.learning_rates is not None:
        return spec.train.learning_rates[batch_sizes(spec, counts)[0]]
    replicas = replicas_in_sync(spec, counts)
    factor = {"none": 1.0, "linear": float(replicas), "sqrt": math.sqrt(replicas)}[spec.train.learning_rate_scaling]
    return spec.train.learning_rate * factor


def memory_bytes(quantity: str) -> int:
    """Bytes of a memory limit as Kubernetes writes it: 1.5Gi."""
    number = quantity.rstrip("".join(_BYTES))
    return int(float(number) * _BYTES[quantity[len(number) :]])
