"""The tasks of a job, and the cluster that each finds in its TF_CONFIG."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from trainer.job.names import (
    TASK_TYPES,
    TaskType,
    container_address,
    control_port,
    is_loopback,
    split_address,
    task_name,
)
from trainer.job.spec import JobSpec

Cluster = dict[str, list[str]]
"""Task type to `host:port` addresses by index. Never contains the evaluator."""


@dataclass(frozen=True)
class Task:
    """One task, and the cluster of its TF_CONFIG."""

    type: TaskType
    index: int
    cluster: Cluster
    given: str | None = field(default=None, compare=False)
    """The task's name in a TF_CONFIG without a chief, if trainer gives it another one."""

    @property
    def name(self) -> str:
        return task_name(self.type, self.index)

    @property
    def chief(self) -> tuple[TaskType, int]:
        """The task that acts as chief: the chief, or worker 0 if there is none."""
        return ("chief", 0) if "chief" in self.cluster else ("worker", 0)

    @property
    def is_chief(self) -> bool:
        return (self.type, self.index) == self.chief

    @property
    def counts(self) -> dict[TaskType, int]:
        return {t: len(self.cluster[t]) for t in TASK_TYPES if t in self.cluster}

    @property
    def address(self) -> tuple[str, int] | None:
        """(host, TensorFlow port) of this task; None for an evaluator, which is outside the cluster."""
        return None if self.type == "evaluator" else split_address(self.cluster[self.type][self.index])

    @property
    def on_loopback(self) -> bool:
        """Whether only tasks on this machine can connect to it."""
        return self.address is not None and is_loopback(self.address[0])

    def control_address(self, task_type: str, index: int) -> tuple[str, int]:
        """(host, port) of the named task's supervisor."""
        host, port = split_address(self.cluster[task_type][index])
        return host, control_port(port)

    def members(self) -> list[tuple[TaskType, int]]:
        """Every task of the cluster, in the order of TASK_TYPES."""
        return [(task_type, index) for task_type, count in self.counts.items() for index in range(count)]

    @cached_property  # part of each report
    def digest(self) -> str:
        """Short hash of the cluster's JSON, to compare between tasks."""
        return hashlib.sha256(json.dumps(self.cluster).encode()).hexdigest()[:12]

    def tf_config(self) -> str:
        return json.dumps({"cluster": self.cluster, "task": {"type": self.type, "index": self.index}})


def tasks_of(
    spec: JobSpec, address: Callable[[str, int], str] | None = None, counts: Mapping[TaskType, int] | None = None
) -> list[Task]:
    """Every task of a job, each with its TF_CONFIG.

    Args:
        address: maps (task type, index) to `host:port`; default: the names of pods.
        counts: number of tasks of each type; default: the spec's.
    """
    where = address or (lambda task_type, index: container_address(spec.name, task_type, index))
    counts = counts or spec.tasks.counts()
    cluster: Cluster = {t: [where(t, i) for i in range(n)] for t, n in counts.items() if t != "evaluator"}
    return [Task(t, i, cluster) for t, n in counts.items() for i in range(n)]


def chief_of(spec: JobSpec) -> Task:
    """The task of a spec that acts as chief."""
    return next(task for task in tasks_of(spec) if task.is_chief)


def graph_cluster(spec: JobSpec, task: Task) -> Cluster:
    """The cluster with TensorFlow's names of jobs: the workers of a graph job are `/job:NAME`."""
    return {job_of(spec, task_type): addresses for task_type, addresses in task.cluster.items()}


def job_of(spec: JobSpec, task_type: str) -> str:
    """The NAME in /job:NAME of tasks of this type."""
    return spec.job_name if task_type == "worker" and not spec.traits.trains else task_type
