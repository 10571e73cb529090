"""Writes TF_CONFIG for each task, and reads it, naming every known mistake.

Facts behind the rules: tensorflow/python/distribute/multi_worker_util.py and tfconfig_cluster_resolver.py (2.21).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.job.derived import batch_rule
from trainer.job.errors import UserError
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
    """Name in a TF_CONFIG without a chief, if it differs from the name here."""

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

    @property
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


def graph_cluster(spec: JobSpec, task: Task) -> Cluster:
    """The cluster with TensorFlow's names of jobs: the workers of a graph job are `/job:NAME`."""
    return {job_of(spec, task_type): addresses for task_type, addresses in task.cluster.items()}


def job_of(spec: JobSpec, task_type: str) -> str:
    """The NAME in /job:NAME of tasks of this type."""
    return spec.job_name if task_type == "worker" and not spec.traits.trains else task_type


def from_environment(spec: JobSpec, environ: Mapping[str, str] = os.environ) -> Task:
    """Reads this task from any TF_CONFIG, also one written by another program (see `_with_a_chief`).

    Raises:
        UserError: TF_CONFIG is missing or broken, or does not fit the spec's strategy; all problems at once.
    """
    text = environ.get("TF_CONFIG")
    if not text:
        raise UserError("TF_CONFIG is not set: it names the cluster and this task; `trainer check SPEC` prints one")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"TF_CONFIG: {text[:60]!r}: is not JSON: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("cluster"), dict):
        raise UserError("TF_CONFIG: must be an object with 'cluster' and 'task'; cluster maps types to addresses")
    config, given = _with_a_chief(config, spec)
    problems = [*_cluster_problems(config["cluster"], spec), *_task_problems(config)]
    if problems:
        raise UserError(*(f"TF_CONFIG: {problem}" for problem in problems))
    task = Task(config["task"]["type"], config["task"]["index"], config["cluster"], given)
    if rule := batch_rule(spec, task.counts):  # the cluster of another program may differ from the spec's
        raise UserError(f"TF_CONFIG: train.global_batch_size: {spec.train.global_batch_size}: {rule}")
    return task


def _with_a_chief(config: dict[str, Any], spec: JobSpec) -> tuple[dict[str, Any], str | None]:
    """Makes the first worker chief if a job needs a coordinator and TF_CONFIG has only workers, as Estimators' had.

    The others are renumbered from 0: TensorFlow requires `/job:worker` to have no gaps.
    """
    cluster, task = config["cluster"], config.get("task")
    workers = cluster.get("worker")
    if not spec.traits.coordinated or "chief" in cluster or not isinstance(workers, list) or len(workers) < 2:
        return config, None
    cluster = {"chief": workers[:1], **cluster, "worker": workers[1:]}
    given = None
    if isinstance(task, dict) and task.get("type") == "worker" and type(index := task.get("index")) is int:
        given = task_name("worker", index)
        task = {**task, "type": "chief"} if index == 0 else {**task, "index": index - 1 if index > 0 else index}
    return {**config, "cluster": cluster, "task": task}, given


def _cluster_problems(cluster: dict[str, Any], spec: JobSpec) -> list[str]:
    problems = []
    seen: dict[str, str] = {}
    for task_type, addresses in cluster.items():
        if task_type == "evaluator":
            problems.append("cluster.evaluator: the evaluator is never part of the cluster (the chief would hang)")
        elif task_type not in TASK_TYPES:
            problems.append(f"cluster: {task_type!r}: unknown task type; known: {', '.join(TASK_TYPES)}")
        elif not isinstance(addresses, list) or not addresses or not all(isinstance(a, str) for a in addresses):
            problems.append(f"cluster.{task_type}: {json.dumps(addresses)[:60]}: must be a list of host:port")
        else:
            problems += _address_problems(task_type, addresses, seen)
            if task_type == "chief" and len(addresses) > 1:
                problems.append(f"cluster.chief: {len(addresses)} addresses: there is at most one chief")
    if "worker" not in cluster and "chief" not in cluster:
        problems.append("cluster: has neither chief nor worker")
    row = spec.traits
    if "ps" in cluster and "ps" not in row.servers:
        problems.append(f"cluster.ps: {spec.strategy} has no ps (TensorFlow would wait for it for ever)")
    needed = ("chief", *row.servers) if row.coordinated else ()
    problems += [f"cluster.{t}: {spec.strategy} needs one" for t in needed if t not in cluster]
    if row.one_task and sum(isinstance(a, list) and len(a) for a in cluster.values()) > 1:
        problems.append(f"cluster: {spec.strategy} trains in one task; multi_worker_mirrored trains in several")
    return problems


def _address_problems(task_type: str, addresses: list[str], seen: dict[str, str]) -> list[str]:
    """Problems of the addresses; `seen` maps the addresses of all types to their tasks."""
    problems = []
    for index, address in enumerate(addresses):
        place = f"cluster.{task_type}[{index}]"
        try:
            split_address(address)
        except ValueError as error:
            problems.append(f"{place}: {error}")
        if (first := seen.setdefault(address, place)) != place:
            problems.append(f"{place}: {address!r}: {first} has the same address; every task needs its own")
    return problems


def _task_problems(config: dict[str, Any]) -> list[str]:
    task = config.get("task")
    if not isinstance(task, dict):
        return ["task: must be {type, index}"]
    task_type, index = task.get("type"), task.get("index")
    if task_type not in TASK_TYPES:
        return [f"task.type: {task_type!r}: must be one of {', '.join(TASK_TYPES)}"]
    if not isinstance(index, int) or isinstance(index, bool):
        return [f'task.index: {index!r}: must be a whole number, not text; write "index": 0']
    addresses = [None] if task_type == "evaluator" else config["cluster"].get(task_type)
    count = len(addresses) if isinstance(addresses, list) else 0
    if not 0 <= index < count:
        return [f"task.index: {index}: the number of {task_type} tasks is {count}; indexes start at 0"]
    return []
