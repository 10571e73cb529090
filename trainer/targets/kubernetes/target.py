"""A job on a Kubernetes: `trainer submit|status|logs|delete`."""

from __future__ import annotations

import asyncio
import heapq
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import yaml

from trainer.job.environment import JOB
from trainer.job.errors import Exit, UserError
from trainer.job.spec import JobSpec
from trainer.targets.kubernetes import pods
from trainer.targets.kubernetes import render as kubernetes
from trainer.targets.kubernetes.api_server import ApiServer, connect, problem
from trainer.targets.kubernetes.render import COMPONENT, INSTANCE, MANAGED_BY
from trainer.targets.text import json_object

KINDS = ("Job", "Service", "NetworkPolicy", "ConfigMap")
"""What a job consists of, besides its volume."""
WATCH_SECONDS = 2.0


async def submit(spec: JobSpec, namespace: str | None, command: str, dry_run: bool) -> list[str]:
    """Applies a job's manifests, all or none: the server is asked about each before the first is made.

    Returns:
        What was done, and what to type next.

    Raises:
        TrainerError: Exit.TARGET, if there is no cluster, or it refuses something.
        UserError: the name is taken by another job.
    """
    manifests = list(yaml.safe_load_all(kubernetes.render(spec, command)))
    async with connect(namespace) as server:
        await server.require_version()
        await _require_secrets(server, spec)
        there = await server.read("Job", f"{spec.name}-chief")
        if there:
            await _require_same(server, spec, manifests[0], there)
            for manifest in manifests:
                await _keep_suspended(server, manifest)
        # Not where the job is there: its running tasks would know no new secret.
        secret = None if there else kubernetes.secret(spec)
        for manifest in manifests:
            await server.apply(manifest, dry_run=True)
        if secret:
            await server.create(secret, dry_run=True)
        objects = [*manifests, secret] if secret else manifests
        names = [f"{each['kind'].lower()}/{each['metadata']['name']}" for each in objects]
        if dry_run:
            return [f"{name}: would be applied" for name in names]
        if secret:
            await server.create(secret, dry_run=False)
        for manifest in manifests:
            await server.apply(manifest, dry_run=False)
        done = there and pods.ended(there)
        news = f"{spec.name}: was there already" if there else f"{spec.name}: submitted, {len(names)} objects"
        way = f"--namespace {server.namespace} {spec.name}"
        if done:
            return [f"{news}, and is {done}; to run it again: trainer delete {way}"]
        return [f"{news}; next: trainer status --watch {way}"]


async def status(name: str, namespace: str | None) -> dict[str, Any]:
    """What is known of a job: its pods, and the chief's own view while it runs.

    Returns:
        {"name", "namespace", "phase", "code", "said", "tasks", "job"}: the chief's exit code and last line once the job
        is over, the rows of `pods.tasks` by task name, and the chief's /status

    Raises:
        TrainerError: Exit.TARGET, if there is no cluster or no such job.
    """
    async with connect(namespace) as server:
        return await _status(server, name)


async def watch(name: str, namespace: str | None) -> AsyncIterator[dict[str, Any]]:
    """`status`, again and again until the job is over."""
    async with connect(namespace) as server:
        while True:
            found = await _status(server, name)
            yield found
            if found["phase"] in ("done", "failed"):
                return
            await asyncio.sleep(WATCH_SECONDS)


async def jobs(namespace: str | None) -> list[dict[str, str]]:
    """All jobs of a namespace: {"job", "phase", "submitted"}, the oldest first."""
    async with connect(namespace) as server:
        chiefs = await server.items("Job", labelSelector=f"{_MANAGED},{COMPONENT}=chief")
    rows = [
        {
            "job": chief["metadata"]["labels"][INSTANCE],
            "phase": pods.ended(chief) or ("suspended" if chief["spec"].get("suspend") else "active"),
            "submitted": chief["metadata"]["creationTimestamp"],
        }
        for chief in chiefs
    ]
    return sorted(rows, key=lambda row: row["submitted"])


async def logs(name: str, namespace: str | None, task: str | None, follow: bool) -> AsyncIterator[tuple[str, str]]:
    """Pairs of task and line. In time order; with `follow` as they come, new pods' too, until the job is over.

    Raises:
        TrainerError: Exit.TARGET, if there is no cluster, no such job, or no such task.
    """
    async with connect(namespace) as server:
        await _chief(server, name)
        if task and task not in pods.tasks(await server.items("Job", labelSelector=_of(name)), [], [], []):
            raise problem(f"{task}: {name} has no such task; `trainer status {name}` lists them")
        if not follow:
            read = [await _all_lines(server, pod) for pod in await _pods(server, name, task)]
            for _, who, line in heapq.merge(*read):
                yield who, line
            return
        queue: asyncio.Queue[tuple[str, str, str] | None] = asyncio.Queue()
        following = asyncio.create_task(_follow(server, name, task, queue))
        try:
            while each := await queue.get():
                yield each[1:]
            await following
        finally:
            following.cancel()


async def delete(name: str, namespace: str | None, volumes: bool) -> list[str]:
    """Removes a job, and waits until its pods are gone.

    Returns:
        What is left.

    Raises:
        TrainerError: Exit.TARGET, if there is no cluster or no such job, or if a pod does not end.
    """
    async with connect(namespace) as server:
        kinds = (*KINDS, "PersistentVolumeClaim") if volumes else KINDS
        found = [(kind, each) for kind in kinds for each in await server.items(kind, labelSelector=_of(name))]
        if not found:
            raise _no_such_job(server, name)
        templates = [each["spec"]["template"]["spec"] for kind, each in found if kind == "Job"]
        grace = max((template["terminationGracePeriodSeconds"] for template in templates), default=0)
        for kind, each in found:
            await server.delete(kind, each["metadata"]["name"])
        await server.delete_all("Secret", labelSelector=_of(name))
        deadline = time.monotonic() + grace + 30
        while left := await server.items("Pod", labelSelector=_of(name)):
            if time.monotonic() > deadline:
                names = ", ".join(pod["metadata"]["name"] for pod in left)
                raise problem(f"{name}: deleted, but these pods do not end: {names}; is their node there?")
            await asyncio.sleep(0.5)
        claims = await server.items("PersistentVolumeClaim", labelSelector=_of(name))
        if claims and not volumes:
            return [f"{name}: deleted; its volume stays, with checkpoints and model; --volumes removes it too"]
        return [f"{name}: deleted"]


_MANAGED = f"{MANAGED_BY}=trainer"


def _of(name: str) -> str:
    """The label selector of all that a job consists of."""
    return f"{_MANAGED},{INSTANCE}={name}"


def _tasks_of(name: str) -> str:
    """That of its tasks."""
    return f"{_of(name)},{COMPONENT}"


async def _chief(server: ApiServer, name: str) -> dict[str, Any]:
    chief = await server.read("Job", f"{name}-chief")
    if chief is None:
        raise _no_such_job(server, name)
    return chief


def _no_such_job(server: ApiServer, name: str) -> Exception:
    return problem(f"{name}: no such job in namespace {server.namespace}; `trainer status` lists what is there")


async def _status(server: ApiServer, name: str) -> dict[str, Any]:
    parts = await server.items("Job", labelSelector=_of(name))
    chief_job = next((job for job in parts if job["metadata"]["name"] == f"{name}-chief"), None)
    if chief_job is None:
        raise _no_such_job(server, name)
    found = await server.items("Pod", labelSelector=_tasks_of(name))
    claims = await server.items("PersistentVolumeClaim", labelSelector=_of(name))
    rows = pods.tasks(parts, found, claims, await server.items("Event", fieldSelector="type=Warning"))
    over, chief, said = pods.ended(chief_job), pods.newest(found, "chief:0"), ""
    asked: dict[str, Any] = {}
    if over and chief:
        async for line in server.log(chief["metadata"]["name"], tailLines="1"):
            said = line.partition(" ")[2]
    elif chief and rows["chief:0"]["state"] == "running":
        asked = await _ask(server, chief)
    return {
        "name": name,
        "namespace": server.namespace,
        "phase": over or _phase(chief_job, rows["chief:0"]["state"], asked),
        # A Job that Kubernetes itself gave up may have no pod that tells a code.
        "code": 0 if over != "failed" else rows["chief:0"]["code"] or int(Exit.TARGET),
        "said": said,
        "tasks": rows,
        "job": asked,
    }


def _phase(chief_job: Mapping[str, Any], state: str, asked: Mapping[str, Any]) -> str:
    """Of a job that is not over; a chief that has ended may get a new pod, until its Job says otherwise."""
    if chief_job["spec"].get("suspend"):
        return "suspended"
    if state in ("succeeded", "failed") or asked.get("phase") in ("done", "failed"):
        return "ending"
    return str(asked.get("phase") or state)


async def _ask(server: ApiServer, chief: Mapping[str, Any]) -> dict[str, Any]:
    """The chief's /status; empty while it does not answer yet, or no longer."""
    text = await server.execute(chief["metadata"]["name"], "python3", "-m", "trainer.supervisor.probe", "status")
    return json_object(text)


async def _require_same(server: ApiServer, spec: JobSpec, config: Mapping[str, Any], chief: Mapping[str, Any]) -> None:
    """Refuses a name that another job has; Kubernetes would only say that a field is immutable."""
    taken = f"name: {spec.name!r}: is taken in namespace {server.namespace}"
    environment = chief["spec"]["template"]["spec"]["containers"][0].get("env", [])
    names = [each["valueFrom"]["configMapKeyRef"]["name"] for each in environment if each["name"] == JOB]
    there = await server.read("ConfigMap", names[0]) if names else None
    if there is None:
        raise UserError(f"{taken} by a Job that trainer did not make; choose another name")
    differences = [
        f"{path}: {old} there, {new} here"
        for key in ("job", "cluster")
        for path, old, new in _differences(json.loads(there["data"][key]), json.loads(config["data"][key]))
    ]
    if differences:
        raise UserError(
            f"{taken} by another job ({'; '.join(differences)}); `trainer delete --namespace {server.namespace} "
            f"{spec.name}` first, or choose another name"
        )


async def _require_secrets(server: ApiServer, spec: JobSpec) -> None:
    """Refuses a key of a Secret that is not there, as far as the user may look: its pods would never start."""
    problems = []
    for name, source in spec.secrets.items():
        key, secret = source.key or name, source.secret or ""
        keys = await server.keys("Secret", secret)
        if keys is not None and key not in keys:
            problems.append(
                f"secrets.{name}: namespace {server.namespace} has no Secret {secret} with a key {key}; "
                f"`kubectl create secret generic {secret} --namespace {server.namespace} --from-file={key}=FILE`"
            )
    if problems:
        raise UserError(*problems)


async def _keep_suspended(server: ApiServer, manifest: dict[str, Any]) -> None:
    """Leaves a Job suspended or not as it is: a user, or Kueue, has decided since."""
    if manifest["kind"] == "Job" and (live := await server.read("Job", manifest["metadata"]["name"])):
        manifest["spec"]["suspend"] = live["spec"].get("suspend", False)


def _differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif old != new:
        there, here = ("unset" if each is None else json.dumps(each) for each in (old, new))
        yield path, there, here


async def _pods(server: ApiServer, name: str, task: str | None) -> list[dict[str, Any]]:
    """Those that have printed something, perhaps."""
    found = await server.items("Pod", labelSelector=_tasks_of(name))
    return [pod for pod in found if _started(pod) and task in (None, pods.task_of(pod))]


def _started(pod: Mapping[str, Any]) -> bool:
    states = [each["state"] for each in pod["status"].get("containerStatuses", [])]
    return any("running" in state or "terminated" in state for state in states)


async def _lines(server: ApiServer, pod: Mapping[str, Any], follow: bool) -> AsyncIterator[tuple[str, str, str]]:
    """(time, task, line) of a pod."""
    who = pods.task_of(pod)
    async for line in server.log(pod["metadata"]["name"], follow):
        when, _, text = line.partition(" ")
        yield when, who, text


async def _all_lines(server: ApiServer, pod: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [line async for line in _lines(server, pod, follow=False)]


async def _follow(
    server: ApiServer, name: str, task: str | None, queue: asyncio.Queue[tuple[str, str, str] | None]
) -> None:
    """Puts every line of every pod into the queue, and None after the last."""

    async def read(pod: Mapping[str, Any]) -> None:
        async for each in _lines(server, pod, True):
            await queue.put(each)

    readers: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            over = pods.ended(await _chief(server, name))
            for pod in await _pods(server, name, task):
                key = pod["metadata"]["uid"]
                if key not in readers:
                    readers[key] = asyncio.create_task(read(pod))
            if over:
                await asyncio.gather(*readers.values())
                return
            await asyncio.sleep(1)
    finally:
        for reader in readers.values():
            reader.cancel()
        await queue.put(None)
