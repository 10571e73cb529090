"""What a cluster lacks for a job that it accepts: warnings of `trainer submit`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from trainer.job.spec import JobSpec
from trainer.targets.kubernetes import gang, names, pod
from trainer.targets.kubernetes.api_server import ApiServer


async def warnings(server: ApiServer, spec: JobSpec) -> list[str]:
    """One line each, of what the user may read there."""
    return [line async for line in _warnings(server, spec)]


async def _warnings(server: ApiServer, spec: JobSpec) -> AsyncIterator[str]:
    queue = gang.queue_label(spec).get(gang.QUEUE)
    if queue is not None and not await server.has("LocalQueue", queue):
        there = f"namespace {server.namespace} has no such LocalQueue of Kueue"
        yield f"kubernetes.queue: {queue!r}: {there}; the job waits"
    if (name := spec.kubernetes.volume.claim) and (why := await _unsuitable(server, spec, name)):
        yield f"kubernetes.volume.claim: {name!r}: {why}"
    if key := pod.topology_key(spec):
        nodes = await server.readable("Node", labelSelector=key, limit="1")
        if nodes == []:
            yield f"kubernetes.topology: {spec.kubernetes.topology!r}: no node has the label {key}, so it has no effect"


async def _unsuitable(server: ApiServer, spec: JobSpec, name: str) -> str | None:
    """Why the pods that write to a claim cannot all mount it."""
    claims = await server.readable("PersistentVolumeClaim", fieldSelector=f"metadata.name={name}")
    if claims is None:
        return None
    if not claims:
        return f"namespace {server.namespace} has no such PersistentVolumeClaim; the pods wait for it"
    modes = claims[0]["spec"].get("accessModes", [])
    counts = names.counts(spec)
    pods = sum(counts.values()) if spec.program else 1 + counts.get("evaluator", 0)
    if "ReadWriteMany" in modes:
        return None
    if spec.kubernetes.volume.access == "ReadWriteMany" and any(mode.startswith("ReadWrite") for mode in modes):
        so = "the chief cannot move from a lost node" + (", and pods on other nodes cannot start" if pods > 1 else "")
        return (
            f"is {' and '.join(modes)}, but kubernetes.volume.access is ReadWriteMany: {so}; name a claim with "
            "ReadWriteMany, or leave out access"
        )
    if "ReadWriteOnce" in modes:
        many = f"is ReadWriteOnce, and {pods} pods write to it: those on other nodes than the first cannot start"
        return (
            f"{many}, unless its storage keeps them together; ReadWriteMany has no such limit"
            if spec.program and pods > 1
            else None
        )
    if "ReadWriteOncePod" in modes:
        return (
            f"is ReadWriteOncePod, and {pods} pods mount it: only one starts; use ReadWriteMany" if pods > 1 else None
        )
    return f"is {' and '.join(modes) or 'without access modes'}, and the job writes to it; use ReadWriteMany"
