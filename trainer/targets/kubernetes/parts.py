"""The parts of a job that its cluster should have: those that are missing are named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import cast

from trainer.job.environment import JOB
from trainer.targets.base import ContainerState
from trainer.targets.kubernetes import pods
from trainer.targets.kubernetes.api_server import ApiServer
from trainer.targets.kubernetes.names import COMPONENT
from trainer.targets.kubernetes.objects import ConfigMap, Job
from trainer.targets.kubernetes.pods import AGAIN


def config_of(chief: Job) -> str:
    """The name of the ConfigMap in which a job's tasks find their spec; empty for a Job of another program."""
    environment = pods.container_of(chief["spec"]["template"]["spec"]).get("env", [])
    return next((each["valueFrom"]["configMapKeyRef"]["name"] for each in environment if each["name"] == JOB), "")


async def missing(
    server: ApiServer, name: str, chief: Job, jobs: Iterable[Job]
) -> tuple[list[str], dict[str, ContainerState]]:
    """What is not there of a job, as far as the user may look: a line for each object, and a row for each task without
    a Job."""
    config = config_of(chief)
    wanted = [("ConfigMap", config), ("Service", name), ("NetworkPolicy", name)]
    there = await asyncio.gather(*(server.has(*each) for each in wanted))
    lines = [
        f"{kind} {each} is gone, without which {_LACKS[kind]}; {AGAIN}"
        for (kind, each), found in zip(wanted, there, strict=True)
        if not found
    ]
    shared = cast("ConfigMap | None", await server.look("ConfigMap", config)) if there[0] else None
    return lines, _without_job(name, shared["data"], jobs) if shared else {}


_LACKS = {
    "ConfigMap": "no new pod of it starts",
    "Service": "its tasks do not find each other",
    "NetworkPolicy": "any pod of the cluster can reach its tasks",
}


def _without_job(name: str, data: Mapping[str, str], jobs: Iterable[Job]) -> dict[str, ContainerState]:
    cluster, spec = json.loads(data["cluster"]), json.loads(data["job"])
    counts = {each: len(addresses) for each, addresses in cluster.items()}
    if "evaluator" in spec.get("tasks", {}):
        counts["evaluator"] = 1
    made = {job["metadata"]["labels"][COMPONENT] for job in jobs}
    return {
        f"{each}:{index}": ContainerState(
            "missing", node="", reason=f"there is no Job {name}-{each}: it was never made, or was deleted; {AGAIN}"
        )
        for each, count in counts.items()
        if each not in made
        for index in range(count)
    }
