"""Finds a job's objects by their labels."""

from __future__ import annotations

from trainer.targets.kubernetes import gang, job_set
from trainer.targets.kubernetes.api_server import ApiServer, problem
from trainer.targets.kubernetes.names import COMPONENT, INSTANCE, MANAGED_BY
from trainer.targets.kubernetes.objects import Claim, Event, Job, Manifest, Pod
from trainer.targets.kubernetes.pods import chief_of

MANAGED = f"{MANAGED_BY}=trainer"
"""The label selector of everything that trainer has created."""


def ours(manifest: Manifest) -> bool:
    """Whether trainer has created an object."""
    return bool(manifest["metadata"].get("labels", {}).get(MANAGED_BY) == "trainer")


def of(name: str) -> str:
    """The label selector of a job's objects."""
    return f"{MANAGED},{INSTANCE}={name}"


def tasks_of(name: str) -> str:
    """The label selector of a job's tasks."""
    return f"{of(name)},{COMPONENT}"


async def jobs(server: ApiServer, selector: str) -> list[Job]:
    """The Jobs, and those of JobSets as their JobSet has them."""
    alone = await server.items("Job", labelSelector=selector)
    sets = await server.items("JobSet", labelSelector=selector)
    workloads = await server.items("Workload") if any(map(_queued, (*alone, *sets))) else []
    return job_set.with_sets(alone, sets, workloads)


def _queued(owner: Manifest) -> bool:
    """Whether a Job or JobSet waits in a queue of Kueue's."""
    return bool(owner["spec"].get("suspend") and gang.QUEUE in owner["metadata"]["labels"])


async def pods(server: ApiServer, name: str) -> list[Pod]:
    """The pods of a job's tasks."""
    return await server.items("Pod", labelSelector=tasks_of(name))


async def claims(server: ApiServer, name: str) -> list[Claim]:
    return await server.items("PersistentVolumeClaim", labelSelector=of(name))


async def warnings(server: ApiServer) -> list[Event]:
    """The namespace's events of type Warning."""
    return await server.items("Event", fieldSelector="type=Warning")


async def chief(server: ApiServer, name: str) -> Job:
    """The Job that shows the outcome of a job."""
    if (its_chief := chief_of(await jobs(server, of(name)))) is None:
        raise no_such_job(server, name)
    return its_chief[0]


def no_such_job(server: ApiServer, name: str) -> Exception:
    return problem(f"{name}: no such job in namespace {server.namespace}; `trainer status` lists what is there")
