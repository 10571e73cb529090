"""Volumes of pods: that of model_dir, those of the job's data and code, and the user's."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping

from trainer.job import code
from trainer.job.data import CACHE, DataVolume, copies, mounted
from trainer.job.errors import UserError
from trainer.job.names import secret_name
from trainer.job.spec import JobSpec
from trainer.targets.container import WORKSPACE

Part = dict[str, object]
"""A volume of a pod, or a mount in it."""


def of_model_dir(spec: JobSpec) -> Part:
    """The source of the volume for model_dir."""
    volume = spec.kubernetes.volume
    if volume.empty_dir:
        return {"emptyDir": {}}
    if volume.host_path:
        return {"hostPath": {"path": volume.host_path, "type": "DirectoryOrCreate"}}
    return {"persistentVolumeClaim": {"claimName": volume.claim or spec.name}}


def claim(spec: JobSpec) -> Part | None:
    """The spec of the claim that the job brings, if it brings one."""
    volume = spec.kubernetes.volume
    if volume.claim or volume.host_path or volume.empty_dir:
        return None
    made: Part = {"accessModes": [volume.access], "resources": {"requests": {"storage": volume.size}}}
    return {**made, "storageClassName": volume.storage_class} if volume.storage_class else made


def of_data(spec: JobSpec, runs: Part) -> tuple[list[Part], list[Part]]:
    """Volumes and mounts of the job's data. Data of one source share a volume, also with `runs`, that of model_dir: a
    kubelet mounts a claim that a pod has twice only once, and may wait for ever for the other.

    Raises:
        UserError: some data have no source here.
    """
    volumes: list[Part] = []
    mounts: list[Part] = []
    problems = []
    for name, place in mounted(spec.data).items():
        volume = spec.data[name].kubernetes
        if volume is None:
            problems.append(
                f"data.{name}.kubernetes: is missing: {spec.data[name].path!r} is a folder of this machine; name a "
                "volume: {claim: NAME}, host_path, nfs or csi"
            )
            continue
        if volume.claim == spec.name and claim(spec):
            problems.append(
                f"data.{name}.kubernetes.claim: {volume.claim!r}: is the claim that the job makes for model_dir; give "
                "the job another name, or set kubernetes.volume.claim"
            )
        source = _source(volume)
        if volume.claim and runs.get("persistentVolumeClaim") == {"claimName": volume.claim}:
            own = "runs"
        else:
            same = [each["name"] for each in volumes if {k: v for k, v in each.items() if k != "name"} == source]
            own = str(same[0]) if same else f"data-{name}"
            volumes += [] if same else [{"name": own, **source}]
        mount: Part = {"name": own, "mountPath": place, "readOnly": True}
        mounts.append({**mount, "subPath": volume.sub_path} if volume.sub_path else mount)
    if problems:
        raise UserError(*problems)
    if copies(spec.data):
        folder = spec.kubernetes.data_cache
        volumes.append(
            {"name": "cache", **({"hostPath": {"path": folder, "type": "Directory"}} if folder else {"emptyDir": {}})}
        )
        mounts.append({"name": "cache", "mountPath": CACHE})
    return volumes, mounts


def _source(volume: DataVolume) -> Part:
    """Read-only where the source has that: the kubelet then leaves the files' owners as they are."""
    if volume.claim:
        return {"persistentVolumeClaim": {"claimName": volume.claim, "readOnly": True}}
    if volume.host_path:
        return {"hostPath": {"path": volume.host_path, "type": "Directory"}}
    if volume.nfs is not None:
        return {"nfs": {**volume.nfs, "readOnly": True}}
    if volume.csi is not None:
        return {"csi": {**volume.csi, "readOnly": True}}
    return dict(volume.volume or {})


SCRATCH_SIZE, SMALL_SIZE = "20Gi", "1Gi"
"""Limits of a pod's own folders, so that a job cannot fill a node's disk: the kubelet ends a pod that exceeds one. A
volume of the user's in `mounts` takes the place of /tmp. Data and checkpoints that are in the pod have none."""


def of_task(spec: JobSpec, task_type: str) -> tuple[list[Part], list[Part]]:
    """The volumes of every task besides `runs` and its data."""
    volumes: list[Part] = [{"name": "tmp", "emptyDir": {"sizeLimit": SCRATCH_SIZE}}]
    mounts: list[Part] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 (in a container)
    if spec.code:
        volumes.append({"name": "code", "emptyDir": {"sizeLimit": SMALL_SIZE}})
        mounts.append({"name": "code", "mountPath": code.PLACE})
    if spec.tasks.of(task_type).gpus:
        # NCCL's rings between GPUs of one node need more than the runtime's 64 MB.
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108
    return volumes, mounts


SECRET_FOLDER, SECRET_VOLUME = "/run/trainer", "report-secret"
MOUNT_RULE = "holds the secret of the job's tasks, which they alone mount; remove it"
"""The rule that refuses a user's container which mounts the secret."""


def of_secret(spec: JobSpec) -> tuple[list[Part], list[Part]]:
    """The Secret with which tasks sign their reports. A pod also starts without it: the folder is empty then."""
    # 0440: the pod's group, 1000, may read it.
    source: Part = {"secretName": secret_name(spec.name), "optional": True, "defaultMode": 0o440}
    mount: Part = {"name": SECRET_VOLUME, "mountPath": SECRET_FOLDER, "readOnly": True}
    return [{"name": SECRET_VOLUME, "secret": source}], [mount]


def of_files(config: str, keys: Mapping[str, str]) -> tuple[list[Part], list[Part]]:
    """The files in the job's ConfigMap, whose keys are given by their names in the working directory."""
    mounts: list[Part] = [
        {"name": "files", "mountPath": f"{WORKSPACE}/{name}", "subPath": key, "readOnly": True}
        for name, key in keys.items()
    ]
    return [{"name": "files", "configMap": {"name": config}}] if keys else [], mounts


SCRATCH = ("/tmp", "/dev/shm")  # noqa: S108
"""The folders in which a user's volume takes the place of ours."""


def with_theirs(ours: list[Part], theirs: Iterable[Part]) -> tuple[list[Part], Callable[[list[Part]], list[Part]]]:
    """Our volumes with the user's, and a function that maps the user's mounts to them. A claim has one volume in the
    pod, for the reason given in `of_data`."""
    volumes = [dict(each) for each in ours]
    changes: dict[object, Part] = {}
    for each in theirs:
        claim = _claim(each)
        same = next((other for other in volumes if claim and _claim(other) == claim), None)
        if same is None:
            volumes.append(dict(each))
            continue
        read_only = each["persistentVolumeClaim"].get("readOnly")  # type: ignore[attr-defined]
        changes[each["name"]] = {"name": same["name"], **({"readOnly": True} if read_only else {})}
        if not read_only:
            same["persistentVolumeClaim"] = {"claimName": claim}
    return volumes, lambda mounts: [{**mount, **changes.get(mount.get("name"), {})} for mount in mounts]


def _claim(volume: Part) -> object:
    source = volume.get("persistentVolumeClaim")
    return source.get("claimName") if isinstance(source, dict) else None


def mounts_with_theirs(ours: list[Part], theirs: list[Part], place: str) -> list[Part]:
    """Our mounts with the user's.

    Args:
        place: the setting that has the user's, for messages.

    Raises:
        UserError: both have the same path.
    """
    paths = [posixpath.normpath(str(each["mountPath"])) for each in theirs]
    kept = [each for each in ours if each["mountPath"] not in SCRATCH or each["mountPath"] not in paths]
    if taken := sorted({str(each["mountPath"]) for each in kept} & {*paths}):
        raise UserError(*(f"{place}: {path!r}: trainer mounts a volume there; choose another path" for path in taken))
    return [*kept, *theirs]
