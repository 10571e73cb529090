"""Refuses the name of a job whose compose project is another's: compose would adopt, replace or remove its parts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import docker
import yaml
from docker.models.containers import Container

from trainer.job import environment
from trainer.job.differences import differences
from trainer.job.errors import UserError
from trainer.job.names import secret_name
from trainer.job.spec import JobSpec
from trainer.targets.compose.render import track_service
from trainer.targets.container import job_of

PROJECT, SERVICE, VOLUME = (f"com.docker.compose.{each}" for each in ("project", "service", "volume"))
"""Labels by which compose knows its own."""
_RUNS = ("running", "restarting", "paused")
_WAY_OUT = "choose another name"


def require_own(client: docker.DockerClient, spec: JobSpec) -> None:
    """Refuses a project of this name with anything that trainer has not made for the job.

    Raises:
        UserError: there is something; all of it is named.
    """
    if others := _others(client, spec):
        raise UserError(f"name: {spec.name!r}: is taken by a compose project {others}; {_WAY_OUT}")


def require_deletable(client: docker.DockerClient, spec: JobSpec) -> None:
    """Refuses to delete such a project.

    Raises:
        UserError: as `require_own`.
    """
    if others := _others(client, spec):
        raise UserError(
            f"{spec.name}: nothing was deleted: compose would remove its whole project, {others}; move that elsewhere, "
            f"or `docker compose --project-name {spec.name} down` to remove all"
        )


def _others(client: docker.DockerClient, spec: JobSpec) -> str:
    others = [*_containers(client, spec), *_volumes(client, spec), *_networks(client, spec)]
    return f"with what trainer did not create: {', '.join(others)}" if others else ""


def _of_project(spec: JobSpec) -> dict[str, str | list[str] | bool]:
    return {"label": f"{PROJECT}={spec.name}"}


def _containers(client: docker.DockerClient, spec: JobSpec) -> Iterator[str]:
    without_spec = (secret_name(spec.name), track_service(spec.name), "tensorboard")
    for each in client.containers.list(all=True, filters=_of_project(spec)):
        if _job_of(each).get("name") != spec.name and each.labels.get(SERVICE) not in without_spec:
            yield f"container {each.name}"


def _volumes(client: docker.DockerClient, spec: JobSpec) -> Iterator[str]:
    """Volumes that have no label of ours. The one with the tasks' secret, which every job has, shows whose the others
    are: compose names and labels those of all programs alike."""
    own = {f"{spec.name}_{each}" for each in (spec.name, secret_name(spec.name), f"{spec.name}-cache")}
    there = {each.name: (each.attrs.get("Labels") or {}).get(PROJECT) == spec.name for each in client.volumes.list()}
    is_ours = there.get(f"{spec.name}_{secret_name(spec.name)}", False)
    for name, labelled in there.items():
        if (labelled and name not in own) or (name in own and not (labelled and is_ours)):
            yield f"volume {name}"


def _networks(client: docker.DockerClient, spec: JobSpec) -> Iterator[str]:
    own = {f"{spec.name}_{each}" for each in (spec.name, "track", "tensorboard")}
    for each in client.networks.list():
        labelled = (each.attrs.get("Labels") or {}).get(PROJECT) == spec.name
        # Only the tasks' own network has no way out.
        other = each.name == f"{spec.name}_{spec.name}" and not each.attrs.get("Internal")
        if (labelled and each.name not in own) or (each.name in own and (other or not labelled)):
            yield f"network {each.name}"


def _variables(container: Container) -> dict[str, str]:
    return dict(each.split("=", 1) for each in container.attrs["Config"].get("Env") or () if "=" in each)


def _job_of(container: Container) -> dict[str, object]:
    """The spec of a task's container; empty in others."""
    try:
        document = json.loads(_variables(container).get(environment.JOB, ""))
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def require_same(
    client: docker.DockerClient, spec: JobSpec, text: str, values: Mapping[str, str], service: str
) -> None:
    """Refuses a name whose job runs with another spec: compose would stop it, and start this one in its place.

    Args:
        text: the compose file.
        values: those of the spec's secrets.
        service: the chief's.

    Raises:
        UserError: it does; the message has the differences.
    """
    tasks = [each for each in client.containers.list(filters=_of_project(spec)) if each.status in _RUNS]
    running = {each.labels[SERVICE]: each for each in tasks if _job_of(each)}
    if not running:
        return
    container = running.get(service) or next(iter(running.values()))
    service = container.labels[SERVICE]
    before, there = _variables(container), _job_of(container)
    different = differences(there, json.loads(job_of(spec)))
    old, new = before.get(environment.SET, ""), os.environ.get(environment.SET, "")
    if old != new:
        different.append(f"{environment.SET}: {old!r} there, {new!r} here")
    different += [
        f"secrets.{name}: another value" for name, value in values.items() if before.get(name, value) != value
    ]
    written = yaml.safe_load(text)["services"].get(service, {})
    different += _other_files(container, written.get("volumes", []))
    if different:
        raise UserError(
            f"name: {spec.name!r}: is taken by another job, which runs ({'; '.join(different)}); `trainer delete "
            f"--target compose` with its spec first, or {_WAY_OUT}"
        )


def _other_files(container: Container, volumes: list[str]) -> Iterator[str]:
    """Folders and files of this machine that differ at a place in the container."""
    there = dict(_place_and_source(each) for each in container.attrs["HostConfig"].get("Binds") or ())
    here = dict(_place_and_source(each.replace("$$", "$")) for each in volumes)
    for place in sorted({*there, *here}):
        old, new = there.get(place), here.get(place)
        if old != new and any(each and each.startswith("/") for each in (old, new)):
            yield f"{place}: {old or 'nothing'} there, {new or 'nothing'} here"


def _place_and_source(mount: str) -> tuple[str, str]:
    source, place, *_ = mount.split(":")
    return place, os.path.normpath(Path(source).absolute()) if source.startswith((".", "/")) else source
