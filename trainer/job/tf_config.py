"""Reads TF_CONFIG, which cluster.py writes, and names every known mistake in it.

Facts behind the rules: tensorflow/python/distribute/multi_worker_util.py and tfconfig_cluster_resolver.py (2.21).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from trainer.job.cluster import Task
from trainer.job.derived import batch_rule
from trainer.job.errors import UserError
from trainer.job.names import TASK_TYPES, split_address, task_name
from trainer.job.spec import JobSpec


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
    config, name_in_tf_config = _with_a_chief(config, spec)
    problems = [*_cluster_problems(config["cluster"], spec), *_task_problems(config)]
    if problems:
        raise UserError(*(f"TF_CONFIG: {problem}" for problem in problems))
    task = Task(config["task"]["type"], config["task"]["index"], config["cluster"], name_in_tf_config)
    rule = None if spec.program else batch_rule(spec, task.counts)
    if rule:  # the cluster of another program may differ from the spec's
        raise UserError(f"TF_CONFIG: train.global_batch_size: {spec.train.global_batch_size}: {rule}")
    return task


def _with_a_chief(config: dict[str, Any], spec: JobSpec) -> tuple[dict[str, Any], str | None]:
    """Makes the first worker chief if a job needs a coordinator and TF_CONFIG has only workers, as Estimators' had.

    The others are renumbered from 0: TensorFlow requires `/job:worker` to have no gaps.
    """
    cluster, task = config["cluster"], config.get("task")
    workers = cluster.get("worker")
    if (
        not spec.traits.coordinated
        or spec.program
        or "chief" in cluster
        or not isinstance(workers, list)
        or len(workers) < 2
    ):
        return config, None
    cluster = {"chief": workers[:1], **cluster, "worker": workers[1:]}
    name_in_tf_config = None
    if isinstance(task, dict) and task.get("type") == "worker" and type(index := task.get("index")) is int:
        name_in_tf_config = task_name("worker", index)
        task = {**task, "type": "chief"} if index == 0 else {**task, "index": index - 1 if index > 0 else index}
    return {**config, "cluster": cluster, "task": task}, name_in_tf_config


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
    needed = ("chief", *row.servers) if row.coordinated and not spec.program else row.servers
    problems += [f"cluster.{t}: {spec.strategy} needs one" for t in needed if t not in cluster]
    if row.one_task and sum(isinstance(a, list) and len(a) for a in cluster.values()) > 1:
        problems.append(f"cluster: {spec.strategy} trains in one task; multi_worker_mirrored trains in several")
    return problems


def _address_problems(task_type: str, addresses: list[str], seen: dict[str, str]) -> list[str]:
    """Problems of the addresses; `seen` maps the addresses of all types to their tasks."""
    problems = []
    for index, address in enumerate(addresses):
        path = f"cluster.{task_type}[{index}]"
        try:
            split_address(address)
        except ValueError as error:
            problems.append(f"{path}: {error}")
        if (first := seen.setdefault(address, path)) != path:
            problems.append(f"{path}: {address!r}: {first} has the same address; every task needs its own")
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
