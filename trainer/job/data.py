"""The section `data` of a spec: where a job's data are on each target, and the variables of a task that name them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from trainer.job import environment
from trainer.job.errors import UserError
from trainer.job.fields import Document, Strict, Text
from trainer.job.kubernetes import Name
from trainer.job.messages import RELATIVE

PLACE = "/data"
"""The folder in containers below which data are mounted, each at its own name."""
CACHE = "/cache"
"""The folder in containers that holds copies."""
READABLE = ("gs",)
"""Schemes of URLs that TensorFlow 2.21 reads: its wheel has no other remote file system."""
SOURCES = ("claim", "host_path", "nfs", "csi", "volume")
OTHER_SOURCES = (
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "configMap", "downwardAPI", "ephemeral", "fc",
    "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "image", "iscsi", "photonPersistentDisk",
    "portworxVolume", "projected", "quobyte", "rbd", "scaleIO", "secret", "storageos", "vsphereVolume",
)  # fmt: skip
"""Sources that `volume` may name: those of a pod's volume, but for the settings above, and emptyDir, which holds no
data."""

DataName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,30}[a-z0-9])?$")]


class DataVolume(Strict):
    """Where pods find the data: one of claim, host_path, nfs, csi and volume. It is mounted read-only."""

    claim: Name | None = None
    """A PersistentVolumeClaim, which the nodes of all tasks must be able to mount."""
    host_path: Annotated[str, Field(pattern=r"^/[^\x00-\x1f\x7f]*$")] | None = None
    """A folder of every node. Pod Security "baseline" and "restricted" forbid it."""
    nfs: Document | None = None
    """As in a pod's volume: {server: files.example, path: /imagenet}. Pod Security "restricted" forbids it."""
    csi: Document | None = None
    """As in a pod's volume: {driver: NAME, volumeAttributes: {...}}."""
    volume: Document | None = None
    """Any other source of a pod's volume, as in {image: {reference: registry.example/imagenet:1}}. Pod Security
    "restricted" allows configMap, downwardAPI, ephemeral, image (from Kubernetes 1.33 on), projected and secret."""
    sub_path: Text | None = None
    """A folder in the volume. Default: the whole volume."""


# Pydantic's models have a deprecated method of that name, which nothing here calls.
warnings.filterwarnings("ignore", message='Field name "copy" in "Data" shadows')


class Data(Strict):
    """A folder of data, which every task reads and none writes. `trainer.data(NAME)` gives its path in a task."""

    path: Text | None = None
    """On local and compose: a folder, relative to the spec. On all targets: gs://BUCKET/FOLDER."""
    kubernetes: DataVolume | None = None
    """On Kubernetes: the volume. Required there, unless the path begins with gs://."""
    copy: Literal["node"] | None = None  # type: ignore[assignment]
    """node: tasks read a copy in a folder of their node, made once per node before the job starts, and checked by
    SHA-256. For slow network volumes."""


def scheme(path: str) -> str | None:
    """`gs` of gs://bucket/folder; None for a folder."""
    return path.partition("://")[0] if "://" in path else None


def mounted(data: Mapping[str, Data]) -> dict[str, str]:
    """The places of data in containers, by name; what is read over the network has none."""
    return {name: f"{PLACE}/{name}" for name, each in data.items() if not (each.path and scheme(each.path))}


def reads(task_type: str) -> bool:
    """Whether tasks of this type read the job's data. A ps holds variables only."""
    return task_type != "ps"


def copies(data: Mapping[str, Data]) -> bool:
    return any(each.copy for each in data.values())


def variable(name: str) -> str:
    """The variable of a task that holds the path of the data."""
    return environment.DATA_PLACE + name.upper().replace("-", "_")


def variables(data: Mapping[str, Data]) -> dict[str, str]:
    """The variables of a task, in whose spec each path is that of its target."""
    places = {name: each.path for name, each in data.items() if each.path}
    return {variable(name): path if scheme(path) else str(Path(path).absolute()) for name, path in places.items()}


def require_here(data: Mapping[str, Data]) -> None:
    """Checks the folders of this machine, for the targets that read them.

    Raises:
        UserError: names each that is missing.
    """
    problems = []
    for name, each in data.items():
        if each.path is None:
            problems.append(f"data.{name}.path: is missing: local and compose read a folder of this machine")
        elif not scheme(each.path) and (what := _why_no_folder(Path(each.path))):
            problems.append(f"data.{name}.path: {each.path!r}: {what} ({RELATIVE})")
    if problems:
        raise UserError(*problems)


def _why_no_folder(path: Path) -> str | None:
    try:
        if path.is_dir():
            return None
        return "is a file; name its folder" if path.exists() else "no such folder on this machine"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def places(each: Data) -> str:
    """Where the data come from on each target, in words."""
    copied = ", copied once per node" if each.copy else ""
    return f"local, compose: {each.path or 'none'}; kubernetes: {_source(each)}{copied}"


def _source(each: Data) -> str:
    volume = each.kubernetes
    if volume is None:
        return each.path if each.path and scheme(each.path) else "none"
    kind = next(kind for kind in SOURCES if getattr(volume, kind) is not None)
    value = getattr(volume, kind)
    if isinstance(value, dict):
        value = value.get("path") or value.get("driver") or ", ".join(value)
    return f"{kind.replace('_', ' ')} {value}" + (f", folder {volume.sub_path}" if volume.sub_path else "")
