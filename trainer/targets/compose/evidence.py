"""What a job on a Docker Engine has left for `trainer debug`: its containers, their logs, and its chief's files."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import IO

import docker
from docker.errors import NotFound
from docker.models.containers import Container

from trainer.debug import ends, files
from trainer.debug.archive import Archive
from trainer.debug.ends import Ends
from trainer.debug.evidence import Evidence, Moment, seconds
from trainer.job.cluster import chief_of, tasks_of
from trainer.job.errors import TrainerError
from trainer.job.names import host_name
from trainer.job.spec import JobSpec
from trainer.targets.compose import engine
from trainer.targets.compose.taken import PROJECT, SERVICE
from trainer.targets.container import model_dir
from trainer.targets.evidence import take

TAIL_LINES = 20_000
"""How many lines are read for the end of a log; the engine cannot count in bytes."""
MOST_BYTES, MOST_SECONDS = 256 << 20, 10.0
"""Limits for the archive of a folder in a container, which has the checkpoints too."""


def collect(archive: Archive, spec: JobSpec) -> Evidence:
    """Adds all that there is of a job to the archive.

    Raises:
        TrainerError: Exit.TARGET, if there is no engine, or it has no such job: why it could not be started.
    """
    evidence = Evidence(spec.name, "in containers", chief=chief_of(spec).name)
    client = engine.connect()
    try:
        by_service = engine.containers(client, spec)
    except TrainerError:
        engine.require(client, spec)
        raise
    for container in by_service.values():  # values of variables that have no place in the spec
        archive.redactor.document(container.attrs)
    names = {host_name(spec.name, task.type, task.index): task.name for task in tasks_of(spec)}
    with archive.part("status.txt"):
        take(archive, evidence, engine.status(spec))
    for service, container in by_service.items():
        with archive.part(f"containers/{service}.json"):
            archive.document(f"containers/{service}.json", container.attrs)
            _note_end(evidence, names.get(service, ""), container.attrs["State"])
        with archive.part(f"logs/{service}.txt"):
            kept = _log(container, ends.share(len(by_service)))
            log = archive.log(f"logs/{service}.txt", kept, names.get(service, ""))
            evidence.logs += [log] if service in names else []
    with archive.part("events.json"):
        _add_events(archive, evidence, client, spec, names)
    with archive.part("engine.json"):
        archive.document("engine.json", {"version": client.version(), "info": client.info()})
    chief = by_service.get(next(host for host, name in names.items() if name == evidence.chief))
    if chief is not None:
        _add_model_dir(archive, evidence, chief, model_dir(spec))
    return evidence


def _note_end(evidence: Evidence, task: str, state: Mapping[str, object]) -> None:
    begun, over = (seconds(str(state.get(each) or "")) for each in ("StartedAt", "FinishedAt"))
    if not task or task not in evidence.tasks:
        return
    if begun and begun > 0:
        evidence.moments.append(Moment("its container was started", task, begun))
    if over and over > 0 and state.get("Status") != "running":
        evidence.end_task(task, over)


def _log(container: Container, most: int) -> Ends:
    """The output of a container, of all times that it was started."""
    with closing(container.logs(stream=True, timestamps=True, follow=False)) as stream:
        head, complete = ends.first(stream, most // 4)
    if complete:
        return Ends(head)
    with closing(container.logs(stream=True, timestamps=True, follow=False, tail=TAIL_LINES)) as stream:
        return ends.joined(head, ends.last(stream, most - most // 4))


def _add_events(
    archive: Archive, evidence: Evidence, client: docker.DockerClient, spec: JobSpec, names: Mapping[str, str]
) -> None:
    """The engine's events of the job's containers: it keeps only the last 256 of all."""
    filters = {"label": f"{PROJECT}={spec.name}", "type": "container"}
    events = list(client.events(since=1, until=int(time.time()) + 1, filters=filters, decode=True))
    archive.document("events.json", events)
    for event in events:
        attributes = event["Actor"]["Attributes"]
        task = names.get(attributes.get(SERVICE, ""), "")
        if event["Action"] in ("die", "oom", "kill", "restart") and task:
            code = f" with exit code {attributes['exitCode']}" if "exitCode" in attributes else ""
            text = {"die": f"its container ended{code}", "oom": "its container was out of memory"}
            said = text.get(event["Action"], f"its container: {event['Action']}")
            evidence.moments.append(Moment(said, task, event["timeNano"] / 1e9, "events.json"))


def _add_model_dir(archive: Archive, evidence: Evidence, chief: Container, folder: str) -> None:
    listed: list[str] = []
    until = time.monotonic() + MOST_SECONDS
    own = engine.own(chief, folder)
    wanted = [
        *((own, name) for name in (*files.OWN, "logs")),
        *((folder, name) for name in (*files.CURVES, "checkpoints")),
    ]
    for place, name in wanted:
        with archive.part(f"{files.FOLDER}/{name}"), suppress(NotFound):
            for path, size, content in _members(chief, f"{place}/{name}", until):
                listed.append(f"{size:>14,}  {path}")
                if content is not None:
                    files.add(archive, evidence, path, content)
    archive.text(f"{files.FOLDER}/files.txt", "\n".join([*listed, ""]))


def _members(container: Container, path: str, until: float) -> Iterator[tuple[str, int, Ends | None]]:
    """The regular files at a path in a container, also one that has ended: name, bytes and content."""
    chunks, _ = container.get_archive(path)
    with tarfile.open(fileobj=_Stream(chunks, until), mode="r|") as packed:
        for member in packed:
            if not member.isreg():
                continue
            file = packed.extractfile(member) if files.wanted(member.name) else None
            yield member.name, member.size, _content(file, member.size) if file else None


def _content(file: IO[bytes], size: int) -> Ends:
    """Reads a file that can be read only once."""
    chunks = iter(lambda: file.read(1 << 16), b"")
    head, complete = ends.first(chunks, ends.MOST_BYTES // 4)
    if complete:
        return Ends(head)
    tail = ends.last(chunks, ends.MOST_BYTES // 2)
    return Ends(head, tail, f"{size - len(head) - len(tail):,} of {size:,} bytes")


class _Stream(io.RawIOBase):
    """The chunks of an answer as a file, up to a limit."""

    def __init__(self, chunks: Iterator[bytes], until: float) -> None:
        self._chunks, self._until, self._rest, self._count = chunks, until, b"", 0

    def read(self, size: int = -1) -> bytes:
        while len(self._rest) < size and (chunk := next(self._chunks, b"")):
            self._rest += chunk
            self._count += len(chunk)
            if time.monotonic() > self._until or self._count > MOST_BYTES:
                raise OSError("not all files were read: there are too many, or the engine is slow")
        part, self._rest = self._rest[:size], self._rest[size:]
        return part
