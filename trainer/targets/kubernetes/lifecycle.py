"""Submits and deletes jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import cast

import yaml

from trainer.job.errors import TrainerError, UserError
from trainer.job.rules.program import sources
from trainer.job.spec import JobSpec
from trainer.targets.base import Deleted, Submitted
from trainer.targets.kubernetes import advice, gang, pods, render, report_secret, taken
from trainer.targets.kubernetes.api_server import EXTENSIONS, ApiServer, connect, kind_of, problem
from trainer.targets.kubernetes.job_set import plain
from trainer.targets.kubernetes.lookup import no_such_job, of, ours
from trainer.targets.kubernetes.objects import Job, Manifest

KINDS = ("JobSet", "Job", "PodGroup", "VolcanoPodGroup", "Service", "NetworkPolicy", "ConfigMap", "PodMonitor")
"""The kinds of a job's objects, besides its volume."""
MAKERS = ("JobSet", "Job")
"""The kinds whose controllers create the job's pods."""


async def submit(spec: JobSpec, namespace: str | None, command: str, dry_run: bool) -> Submitted:
    """Applies a job's manifests, all or none: each passes a dry run before the first is created.

    Raises:
        TrainerError: Exit.TARGET, if there is no cluster, or it refuses something.
        UserError: the name is taken by another job.
    """
    manifests = list(yaml.safe_load_all(render.render(spec, command)))
    async with connect(namespace) as server:
        await server.require_version()
        await _require_gang(server, spec)
        await _require_values(server, spec)
        existing = await taken.existing(server, spec)
        secret = await report_secret.missing(server, spec, existing)
        if secret or (existing and report_secret.is_required(existing)):
            report_secret.require(manifests)
        await taken.require_own(server, spec, [*manifests, *([secret] if secret else [])])
        if existing:
            await taken.require_same(server, spec, manifests[0], existing)
            # A JobSet that runs may not be changed, and Kueue has rewritten it: without empty values, for one.
            manifests = [each for each in manifests if each["kind"] != "JobSet"]
            for manifest in manifests:
                await _keep_suspended(server, manifest)
        warnings: list[str] = []
        for manifest in manifests:
            warnings += (await server.apply(manifest, dry_run=True)).warnings
            # JobSet does not check its pods: with a wrong one it would be accepted, and have no pods.
            for part in plain(manifest) if manifest["kind"] == "JobSet" else []:
                warnings += (await server.check(part)).warnings
        if secret:
            warnings += (await server.create(secret, dry_run=True)).warnings
        made = [] if dry_run else await _create_all(server, spec, manifests, secret)
        return Submitted(
            spec.name,
            _names([*manifests, secret] if secret else manifests),
            new=existing is None,
            restored=_names(made) if existing else [],
            ended=pods.ended(existing) if existing else None,
            namespace=server.namespace,
            warnings=[*_unique(warnings), *await advice.warnings(server, spec)],
        )


def _names(objects: Iterable[Manifest]) -> list[str]:
    return [f"{each['kind'].lower()}/{each['metadata']['name']}" for each in objects]


async def _create_all(
    server: ApiServer, spec: JobSpec, manifests: Iterable[Manifest], secret: Manifest | None
) -> list[Manifest]:
    """Creates all objects, or none, because a quota may refuse a Job that its dry run allowed. Returns the new ones."""
    made: list[Manifest] = []
    try:
        if secret and (await server.create(secret, dry_run=False)).created:
            made.append(secret)
        for manifest in manifests:
            if (await server.apply(manifest, dry_run=False)).created:
                made.append(manifest)
        return made
    except TrainerError as error:
        if not made:
            raise
        try:
            for each in reversed(made):
                await server.delete(kind_of(each), each["metadata"]["name"])
        except TrainerError:
            left = f"`trainer delete --namespace {server.namespace} {spec.name}` removes what was made before"
            raise TrainerError(f"{error}; {left}", error.code) from None
        raise TrainerError(f"{error}; what was made before is removed again", error.code) from None


def _unique(warnings: Iterable[str]) -> Iterator[str]:
    """What Kubernetes warns of, once: it says the same of each Job."""
    return (f"Kubernetes: {text}" for text in dict.fromkeys(warnings))


async def delete(name: str, namespace: str | None, volumes: bool) -> Deleted:
    """Removes a job, and waits until its pods are gone.

    Raises:
        TrainerError: Exit.TARGET, if there is no cluster or no such job, if the user may not delete its JobSet, or if
            a pod does not end.
    """
    async with connect(namespace) as server:
        kinds = (*KINDS, "PersistentVolumeClaim") if volumes else KINDS
        listed = {kind: await _listed(server, kind, name) for kind in kinds}
        objects = [(kind, each) for kind, some in listed.items() for each in some or []]
        if not objects:
            raise no_such_job(server, name)
        jobs = cast("list[Job]", listed["Job"] or [])
        grace = max((each["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for each in jobs), default=0)
        await _delete_unlisted(server, name, [kind for kind in kinds if listed[kind] is None], jobs)
        for kind, each in objects:
            if kind in MAKERS:
                await server.delete(kind, each["metadata"]["name"])
        left = await _left_after(server, name, grace + 30)
        for kind, each in objects:
            if kind not in MAKERS:
                await server.delete(kind, each["metadata"]["name"])
        await server.delete_all("Secret", labelSelector=of(name))
        if left:
            raise problem(f"{name}: deleted, but these pods do not end: {', '.join(left)}; check their nodes")
        claims = await server.items("PersistentVolumeClaim", labelSelector=of(name))
        return Deleted(name, volume_stays=bool(claims) and not volumes)


async def _left_after(server: ApiServer, name: str, seconds: float) -> list[str]:
    """The pods of a job that do not end within this time. Until they do they need its names, and its NetworkPolicy: the
    chief still saves a checkpoint."""
    deadline = time.monotonic() + seconds
    while left := await server.items("Pod", labelSelector=of(name)):
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.5)
    return [pod["metadata"]["name"] for pod in left]


async def _listed(server: ApiServer, kind: str, name: str) -> list[Manifest] | None:
    """A job's objects of a kind; None for an extension's that the user may not list."""
    return await (server.readable if kind in EXTENSIONS else server.items)(kind, labelSelector=of(name))


async def _delete_unlisted(server: ApiServer, name: str, kinds: Iterable[str], jobs: Iterable[Job]) -> None:
    """Deletes a job's objects of kinds that the user may not list: they have its name. Most users without the right to
    delete them either have none.

    Args:
        jobs: those of the job.

    Raises:
        TrainerError: Exit.TARGET, if the user may not delete their JobSet.
    """
    for kind in kinds:
        live = await server.look(kind, name)
        if (live and not ours(live)) or await server.may_delete(kind, name):
            continue
        owners = [owner["kind"] for job in jobs for owner in job["metadata"].get("ownerReferences", [])]
        if kind in owners:
            raise problem(
                f"{name}: its JobSet would make the Jobs again, and you may not delete it, so all stays; you need the "
                f"right to delete jobsets.jobset.x-k8s.io in namespace {server.namespace}"
            )


async def _require_gang(server: ApiServer, spec: JobSpec) -> None:
    """Refuses a cluster that lacks what starts the job as a whole."""
    chosen = spec.kubernetes.gang
    if chosen in gang.APIS and not await server.serves(*gang.APIS[chosen][:2]):
        api, resource, fix = gang.APIS[chosen]
        raise problem(f"kubernetes.gang: {chosen!r}: this cluster does not serve {resource} of {api}; {fix}")


async def _require_values(server: ApiServer, spec: JobSpec) -> None:
    """Refuses missing keys of Secrets and ConfigMaps, where the user may read them: the pods would never start."""
    wanted = [
        (f"secrets.{name}", "Secret", source.secret or "", source.key or name) for name, source in spec.secrets.items()
    ]
    wanted += [
        (path, "ConfigMap", source.config_map, source.key or path.rpartition(".")[2])
        for path, source in sources(spec)
        if source.config_map
    ]
    problems = []
    for path, kind, name, key in wanted:
        keys = await server.keys(kind, name)
        if keys is not None and key not in keys:
            made = "secret generic" if kind == "Secret" else "configmap"
            problems.append(
                f"{path}: namespace {server.namespace} has no {kind} {name} with a key {key}; "
                f"`kubectl create {made} {name} --namespace {server.namespace} --from-file={key}=FILE`"
            )
    if problems:
        raise UserError(*problems)


async def _keep_suspended(server: ApiServer, manifest: Manifest) -> None:
    """Keeps whether a Job is suspended, which a user or Kueue may have changed."""
    if manifest["kind"] == "Job" and (live := await server.read("Job", manifest["metadata"]["name"])):
        manifest["spec"]["suspend"] = live["spec"].get("suspend", False)
