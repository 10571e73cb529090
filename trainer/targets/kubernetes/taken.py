"""Refuses the name of a job whose objects are another's: `submit` would adopt them, and `delete` would delete them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import cast

from trainer.job.differences import differences
from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.targets.kubernetes import names, pods
from trainer.targets.kubernetes.api_server import ApiServer, kind_of
from trainer.targets.kubernetes.job_set import jobs_of, plain
from trainer.targets.kubernetes.lookup import ours
from trainer.targets.kubernetes.names import INSTANCE
from trainer.targets.kubernetes.objects import ConfigMap, Job, Manifest
from trainer.targets.kubernetes.parts import config_of

_SHOWN = {"VolcanoPodGroup": "PodGroup"}


async def existing(server: ApiServer, spec: JobSpec) -> Job | None:
    """The Job of a chief by this name, alone or in a JobSet."""
    # Listed, not read: a user without JobSets may have no permission to read them.
    for job_set in await server.items("JobSet", fieldSelector=f"metadata.name={spec.name}"):
        if ours(job_set):
            chief = pods.chief_of(jobs_of(job_set, {}))
            return chief[0] if chief else None
    for task_type in names.CHIEFS:
        job: Manifest | None = await server.read("Job", f"{spec.name}-{task_type}")
        if job and ours(job):
            return cast(Job, job)
    return None


async def require_own(server: ApiServer, spec: JobSpec, objects: Sequence[Manifest]) -> None:
    """Refuses objects that trainer has not made for a job of this name, where the user may read them.

    Raises:
        UserError: there are some; all are named.
    """
    of_sets = [job for each in objects if each["kind"] == "JobSet" for job in plain(each)]
    wanted = [(kind_of(each), str(each["metadata"]["name"])) for each in [*objects, *of_sets]]
    live = await asyncio.gather(*(server.look(*each) for each in wanted))
    others = [each for each, found in zip(wanted, live, strict=True) if found and not _is_of(found, spec.name)]
    if others:
        raise UserError(*(f"{_taken(server, spec)} {_by_another(spec, *each)}" for each in others))


def _is_of(found: Manifest, name: str) -> bool:
    return ours(found) and found["metadata"]["labels"].get(INSTANCE) == name


def _by_another(spec: JobSpec, kind: str, name: str) -> str:
    way_out = "choose another name"
    if kind == "PersistentVolumeClaim":
        way_out = f"name it in kubernetes.volume.claim if the job is to use it, or {way_out}"
    which = "" if name == spec.name else f" ({name})"
    return f"by a {_SHOWN.get(kind, kind)} that trainer did not create{which}; {way_out}"


def _taken(server: ApiServer, spec: JobSpec) -> str:
    return f"name: {spec.name!r}: is taken in namespace {server.namespace}"


async def require_same(server: ApiServer, spec: JobSpec, config: Manifest, chief: Job) -> None:
    """Refuses a name that another job has; Kubernetes would only report that a field is immutable.

    Args:
        config: the job's ConfigMap.

    Raises:
        UserError: another spec has it; the message has the differences.
    """
    before = config_of(chief)
    if before == config["metadata"]["name"]:  # of its contents; it may have been deleted
        return
    there: ConfigMap | None = await server.read("ConfigMap", before)
    way_out = f"`trainer delete --namespace {server.namespace} {spec.name}` first, or choose another name"
    if there is None:
        raise UserError(f"{_taken(server, spec)} by another job, whose ConfigMap {before} is gone; {way_out}")
    if different := list(_differing(there, config)):
        raise UserError(f"{_taken(server, spec)} by another job ({'; '.join(different)}); {way_out}")


def _differing(there: ConfigMap, here: Manifest) -> Iterable[str]:
    for key in ("job", "cluster"):
        yield from differences(json.loads(there["data"][key]), json.loads(here["data"][key]))
    files, ours_here = there.get("binaryData") or {}, here.get("binaryData") or {}
    for name in sorted({*files, *ours_here}):
        if files.get(name) != ours_here.get(name):
            yield f"{name}: another file there"
