"""The Secret with which a job's tasks sign their reports, on the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import cast

from trainer.job import secret as job_secret
from trainer.job.names import secret_name
from trainer.job.spec import JobSpec
from trainer.targets.kubernetes import lookup, pods, render
from trainer.targets.kubernetes.api_server import ApiServer, problem
from trainer.targets.kubernetes.objects import Job, Manifest
from trainer.targets.kubernetes.volumes import SECRET_FOLDER, SECRET_VOLUME


async def missing(server: ApiServer, spec: JobSpec, existing: Job | None) -> Manifest | None:
    """The Secret to create: a new one for a new job, and one with the value of the running tasks for a job whose Secret
    was deleted. None for a job that has its Secret, or was applied without one.

    Raises:
        TrainerError: Exit.TARGET, if tasks run and their value cannot be read.
    """
    if existing is None:
        return render.secret(spec)
    name = secret_name(spec.name)
    if not is_required(existing) or await server.has("Secret", name):
        return None
    running = [each for each in await lookup.pods(server, spec.name) if "running" in pods.state_of(each)]
    path = f"{SECRET_FOLDER}/{job_secret.FILE}"
    texts = await asyncio.gather(*(server.execute(each["metadata"]["name"], "cat", path) for each in running))
    value = next(filter(None, texts), None)
    if running and value is None:
        raise problem(
            f"secrets/{name}: is gone, and the tasks that run sign with its value, which cannot be read in their pods "
            f"(the right to create pods/exec is needed); `trainer delete --namespace {server.namespace} {spec.name}`, "
            "and submit the job again"
        )
    return {**(made := render.secret(spec)), "stringData": {job_secret.FILE: value} if value else made["stringData"]}


def is_required(job: Job) -> bool:
    """Whether the pods of a Job wait for the Secret: those of rendered manifests also start without it."""
    return any(
        each["secret"].get("optional") is False for each in _of_template(cast(Manifest, job["spec"]["template"]))
    )


def require(manifests: Iterable[Manifest]) -> None:
    """Makes the pods of these manifests wait for the Secret: without it they would sign with none, and be refused."""
    for manifest in manifests:
        of_set = manifest.get("spec", {}).get("replicatedJobs", []) if manifest["kind"] == "JobSet" else []
        jobs = [manifest] if manifest["kind"] == "Job" else [each["template"] for each in of_set]
        for each in (volume for job in jobs for volume in _of_template(job["spec"]["template"])):
            each["secret"]["optional"] = False


def _of_template(template: Manifest) -> Iterator[Manifest]:
    for each in template["spec"].get("volumes") or []:
        if each["name"] == SECRET_VOLUME and "secret" in each:
            yield each
