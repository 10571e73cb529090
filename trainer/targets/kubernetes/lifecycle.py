"""Submits and deletes jobs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

import yaml

from trainer.job.environment import JOB
from trainer.job.errors import UserError
from trainer.job.program_rules import sources
from trainer.job.spec import JobSpec
from trainer.targets.base import Deleted, Submitted
from trainer.targets.kubernetes import advice, gang, names, pods, render
from trainer.targets.kubernetes.api_server import ApiServer, connect, problem
from trainer.targets.kubernetes.job_set import jobs_of
from trainer.targets.kubernetes.lookup import no_such_job, of
from trainer.targets.kubernetes.objects import ConfigMap, Job, Manifest

KINDS = ("JobSet", "Job", "PodGroup", "VolcanoPodGroup", "Service", "NetworkPolicy", "ConfigMap", "PodMonitor")
"""The kinds of a job's objects, besides its volume."""


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
        existing = await _existing(server, spec.name)
        if existing:
            await _require_same(server, spec, manifests[0], existing)
            # A JobSet that runs may not be changed, and Kueue has rewritten it: without empty values, for one.
            manifests = [each for each in manifests if each["kind"] != "JobSet"]
            for manifest in manifests:
                await _keep_suspended(server, manifest)
        # Not if the job exists: its running tasks would not have the new secret.
        secret = None if existing else render.secret(spec)
        for manifest in manifests:
            await server.apply(manifest, dry_run=True)
        if secret:
            await server.create(secret, dry_run=True)
        objects = [*manifests, secret] if secret else manifests
        names = [f"{each['kind'].lower()}/{each['metadata']['name']}" for each in objects]
        if not dry_run:
            if secret:
                await server.create(secret, dry_run=False)
            for manifest in manifests:
                await server.apply(manifest, dry_run=False)
        return Submitted(
            spec.name,
            names,
            new=existing is None,
            ended=pods.ended(existing) if existing else None,
            namespace=server.namespace,
            warnings=await advice.warnings(server, spec),
        )


async def delete(name: str, namespace: str | None, volumes: bool) -> Deleted:
    """Removes a job, and waits until its pods are gone.

    Raises:
        TrainerError: Exit.TARGET, if there is no cluster or no such job, or if a pod does not end.
    """
    async with connect(namespace) as server:
        kinds = (*KINDS, "PersistentVolumeClaim") if volumes else KINDS
        found = [(kind, each) for kind in kinds for each in await server.items(kind, labelSelector=of(name))]
        if not found:
            raise no_such_job(server, name)
        templates = [each["spec"]["template"]["spec"] for kind, each in found if kind == "Job"]
        grace = max((template["terminationGracePeriodSeconds"] for template in templates), default=0)
        for kind, each in found:
            await server.delete(kind, each["metadata"]["name"])
        await server.delete_all("Secret", labelSelector=of(name))
        deadline = time.monotonic() + grace + 30
        while left := await server.items("Pod", labelSelector=of(name)):
            if time.monotonic() > deadline:
                names = ", ".join(pod["metadata"]["name"] for pod in left)
                raise problem(f"{name}: deleted, but these pods do not end: {names}; check their nodes")
            await asyncio.sleep(0.5)
        claims = await server.items("PersistentVolumeClaim", labelSelector=of(name))
        return Deleted(name, volume_stays=bool(claims) and not volumes)


async def _existing(server: ApiServer, name: str) -> Job | None:
    """The Job of a chief by this name, alone or in a JobSet."""
    # Listed, not read: a user without JobSets may have no permission to read them.
    for job_set in await server.items("JobSet", fieldSelector=f"metadata.name={name}"):
        found = pods.chief_of(jobs_of(job_set, {}))
        return found[0] if found else None
    for task_type in names.CHIEFS:
        job: Job | None = await server.read("Job", f"{name}-{task_type}")
        if job:
            return job
    return None


async def _require_same(server: ApiServer, spec: JobSpec, config: Manifest, chief: Job) -> None:
    """Refuses a name that another job has; Kubernetes would only report that a field is immutable."""
    taken = f"name: {spec.name!r}: is taken in namespace {server.namespace}"
    environment = chief["spec"]["template"]["spec"]["containers"][0].get("env", [])
    names = [each["valueFrom"]["configMapKeyRef"]["name"] for each in environment if each["name"] == JOB]
    existing: ConfigMap | None = await server.read("ConfigMap", names[0]) if names else None
    if existing is None:
        raise UserError(f"{taken} by a Job that trainer did not create; choose another name")
    differences = [
        f"{path}: {old} there, {new} here"
        for key in ("job", "cluster")
        for path, old, new in _differences(json.loads(existing["data"][key]), json.loads(config["data"][key]))
    ]
    if differences:
        raise UserError(
            f"{taken} by another job ({'; '.join(differences)}); `trainer delete --namespace {server.namespace} "
            f"{spec.name}` first, or choose another name"
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


def _differences(old: object, new: object, path: str = "") -> Iterator[tuple[str, str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif old != new:
        there, here = ("unset" if each is None else json.dumps(each) for each in (old, new))
        yield path, there, here
