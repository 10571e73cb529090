"""Numbers and predicates that follow from a spec, its traits and the counts of its tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from trainer.job.accelerators import asked_by_patch
from trainer.job.cluster import Task
from trainer.job.kubernetes import OUR_CONTAINERS
from trainer.job.names import TaskType
from trainer.job.spec import JobSpec

DEFAULT_STEPS = 1000
# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_POWERS = ("k", "M", "G", "T", "P", "E")
_BYTES = {
    "": 1,
    **{unit: 1000**power for power, unit in enumerate(_POWERS, 1)},
    **{f"{unit.upper()}i": 1024**power for power, unit in enumerate(_POWERS, 1)},
}


def batch_rule(spec: JobSpec, counts: dict[TaskType, int]) -> str | None:
    """The rule that the global batch size breaks in a cluster of these counts, or None."""
    batch, replicas = spec.train.global_batch_size, replicas_in_sync(spec, counts)
    if batch is None or batch % replicas == 0:
        return None
    lower, upper = batch // replicas * replicas, (batch // replicas + 1) * replicas
    nearest = f"{lower} or {upper}" if lower else str(upper)
    return f"must be divisible by the {replicas} replicas in sync; the nearest that are: {nearest}"


def rate_rule(spec: JobSpec, counts: dict[TaskType, int]) -> str | None:
    """The rule that the table of learning rates breaks in a cluster of these counts, or None."""
    rates, (batch, _) = spec.train.learning_rates, batch_sizes(spec, counts)
    if rates is None or batch in rates:
        return None
    return f"has no rate for the global batch size {batch}; it has {', '.join(map(str, sorted(rates)))}"


def has_ring(spec: JobSpec, counts: Mapping[TaskType, int]) -> bool:
    """Whether gradients are added up over tasks by trainer's own ring (trainer/training/exchange/ring.py): those of one
    CPU in each task."""
    worker, members = spec.tasks.worker, sum(count for kind, count in counts.items() if kind != "evaluator")
    ours = spec.traits.collective and spec.traits.trains and spec.communication.implementation == "auto"
    return ours and not spec.program and members > 1 and not worker.gpus and worker.cpu_devices == 1


def replicas_in_sync(spec: JobSpec, counts: dict[TaskType, int]) -> int:
    """Replicas whose gradients make one step (`num_replicas_in_sync`), in a cluster of these counts."""
    if spec.traits.replicas == "one":
        return 1
    if spec.traits.replicas == "cores":
        return spec.tpu.cores
    if spec.devices is not None:
        return len(spec.devices)
    worker = spec.tasks.worker
    return computing_tasks(spec, counts) * (worker.gpus or worker.cpu_devices)


def computing_tasks(spec: JobSpec, counts: Mapping[TaskType, int]) -> int:
    """Tasks that compute during the training: the workers, and a chief that is not a coordinator."""
    return counts.get("worker", 0) + (0 if spec.traits.coordinated else counts.get("chief", 0))


def batch_sizes(spec: JobSpec, counts: dict[TaskType, int]) -> tuple[int, int]:
    """(global, per replica) batch size: examples in one step, and in one replica's part of it."""
    replicas = replicas_in_sync(spec, counts)
    if spec.train.global_batch_size is not None:
        return spec.train.global_batch_size, spec.train.global_batch_size // replicas
    per_replica = spec.train.batch_size or 64
    return per_replica * replicas, per_replica


def is_server(spec: JobSpec, task_type: str) -> bool:
    """Whether such a task only serves graphs sent by its chief, and so does not need TensorFlow's Python."""
    return task_type in spec.traits.servers


def gpus_on_one_machine(spec: JobSpec, tasks: Iterable[Task]) -> dict[str, range]:
    """The numbers of each task's GPUs, by its name, on a machine that has those of all tasks: the first ones are those
    of the first task, and so on."""
    found, first = {}, 0
    for task in tasks:
        found[task.name] = range(first, first + spec.tasks.of(task.type).gpus)
        first = found[task.name].stop
    return found


def hidden_gpus(spec: JobSpec, task_type: str) -> dict[str, str]:
    """The variable that hides all GPUs from tasks that ask for none: they would take the memory of all visible ones.

    A task asks by `gpus`, by a patch of its pod for any accelerator, or by the variable of NVIDIA's container runtime.
    """
    group = spec.tasks.of(task_type)
    patched = any(asked_by_patch(each.pod, OUR_CONTAINERS[0]) for each in (spec.kubernetes, group.kubernetes))
    visible = spec.env_of(task_type).get("NVIDIA_VISIBLE_DEVICES", "none") not in ("", "none", "void")
    return {} if group.gpus or patched or visible else {"CUDA_VISIBLE_DEVICES": "-1"}


def restarts_alone(spec: JobSpec, name: str, chief: str) -> bool:
    """Whether the child of this task is restarted without the other tasks.

    Args:
        chief: the name of the job's chief, which may be a worker.
    """
    task_type = name.partition(":")[0]
    return task_type == "evaluator" or (task_type in spec.traits.restart_alone and name != chief)


def learning_rate(spec: JobSpec, counts: dict[TaskType, int]) -> float:
    """The optimizer's learning rate: from the table, or scaled by the replicas in sync."""
    if spec.train.learning_rates is not None:
        return spec.train.learning_rates[batch_sizes(spec, counts)[0]]
    replicas = replicas_in_sync(spec, counts)
    factor = {"none": 1.0, "linear": float(replicas), "sqrt": math.sqrt(replicas)}[spec.train.learning_rate_scaling]
    return spec.train.learning_rate * factor


def memory_bytes(quantity: str) -> int:
    """Bytes of a memory limit in Kubernetes' notation: 1.5Gi."""
    number = quantity.rstrip("".join(_BYTES))
    return int(float(number) * _BYTES[quantity[len(number) :]])
