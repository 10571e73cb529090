"""`trainer debug`: one archive of all that there is of a job, and a verdict on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from trainer import __version__
from trainer.debug import archive as archives
from trainer.debug.archive import Archive
from trainer.debug.evidence import Evidence, Moment, TaskEvidence
from trainer.debug.page import page
from trainer.debug.redaction import Redactor
from trainer.debug.verdict import Verdict, verdict
from trainer.job.errors import TrainerError, UserError
from trainer.job.load import read_text
from trainer.job.spec import JobSpec
from trainer.job.yaml_text import parse
from trainer.model_dir.result import Computed, Result, Training
from trainer.model_dir.stacks import parse as parse_stacks
from trainer.protocol.status import JobStatus
from trainer.targets import machine
from trainer.targets.base import Job, JobOverview, Target
from trainer.targets.show.stacks import describe


class Debugged(NamedTuple):
    """An archive, and its verdict."""

    path: Path
    size: int
    verdict: Verdict


def write(target: Target, job: Job, output: Path | None, refuse: Callable[[JobSpec], None]) -> Debugged:
    """Writes the archive of a job.

    Args:
        output: default: NAME-debug-TIME.zip in the working directory.
        refuse: raises what is wrong with a job that never started.

    Raises:
        UserError: the archive cannot be written.
        UserError, TrainerError: there is no such job, and no spec of it.
    """

    def collect(archive: Archive) -> Evidence:
        if job.spec:
            archive.document("spec.json", job.spec.model_dump(mode="json", exclude_defaults=True))
        try:
            evidence = target.debug(job, archive)
        except TrainerError as error:
            if job.spec is None:
                raise
            evidence = _refused(archive, job.name, error)
        if evidence.phase == "running":
            with archive.part("stacks/now.txt"):
                archive.text("stacks/now.txt", "\n".join([*describe(target.stacks(job)), ""]))
        for number, each in enumerate(evidence.hangs, 1):
            archive.text(f"stacks/hang-{number}.txt", "\n".join([*describe(each), ""]))
        if evidence.problems and not evidence.phase and job.spec:
            try:
                refuse(job.spec)
            except TrainerError as error:
                evidence.problems, evidence.code = [*_lines(archive, error), *evidence.problems], error.code
        return evidence

    return _write(collect, Path(job.name).resolve().name, machine.known_secrets(job.spec), output)


def write_refused(path: Path, error: UserError, output: Path | None) -> Debugged:
    """Writes the archive of a job whose spec, the file at path, is refused."""

    def collect(archive: Archive) -> Evidence:
        with archive.part("spec.json"):
            archive.document("spec.json", parse(read_text(path), str(path)))
        return _refused(archive, path.stem, error)

    return _write(collect, path.stem, machine.known_secrets(None), output)


def _refused(archive: Archive, name: str, error: TrainerError) -> Evidence:
    """What is known of a job that never started."""
    return Evidence(name, "which was never started", code=error.code, problems=_lines(archive, error))


def _write(
    collect: Callable[[Archive], Evidence], name: str, known: Mapping[str, str], output: Path | None
) -> Debugged:
    """Writes an archive with what `collect` adds to it, and the page of what that returns."""
    now = time.gmtime()
    folder = f"{name}-debug-{time.strftime('%Y%m%dT%H%M%SZ', now)}"
    path = output or Path(f"{folder}.zip")
    found: list[Verdict] = []

    def fill(archive: Archive) -> None:
        evidence = collect(archive)
        found.append(verdict(evidence))
        made = f"made {time.strftime('%Y-%m-%d %H:%M:%S', now)} UTC by trainer {__version__}"
        archive.page("index.html", page(evidence, found[0], archive.entries, made))

    size = archives.write(path, folder, Redactor(known), fill)
    return Debugged(path, size, found[0])


def _lines(archive: Archive, error: TrainerError) -> list[str]:
    return archive.clean(str(error)).split("\n")


def take(archive: Archive, evidence: Evidence, found: JobOverview) -> None:
    """Takes over what `trainer status` shows."""
    hide = archive.clean
    evidence.job, evidence.phase = found.name, found.phase
    evidence.code = found.code if found.over else None
    evidence.message = hide(found.last_line or "") if found.phase in ("failed", "stopped") else ""
    evidence.tasks |= {
        name: TaskEvidence(row.state, row.code or None, hide(row.reason or ""), row.node or "", row.restarts)
        for name, row in found.tasks.items()
    }
    if found.job:
        archive.document("status.json", found.job.document())
        evidence.moments += [
            Moment(hide(event.text), time=event.time, path="status.json") for event in found.job.events
        ]
        evidence.hangs = parse_stacks(archive.redactor.document([asdict(each) for each in found.job.hangs]))
    if isinstance(found.job, Result):
        evidence.remarks += [*map(hide, found.job.warnings), *_slow_start(found.job)]
    if isinstance(found.job, JobStatus):
        evidence.waiting_for = hide(found.job.waiting_for or "")
        evidence.chief = found.job.task
        stalled = [found.job.stalled] if found.job.stalled else []
        evidence.remarks += [hide(text) for text in (*stalled, *found.job.warnings)]


def _slow_start(result: Result) -> list[str]:
    """A remark on a job that took longer to its first step than from there to its end."""
    first = None if isinstance(result.figures, Computed) else result.figures.seconds_to_first_step
    if first is None or first < result.seconds / 2:
        return []
    phases = result.figures.seconds_by_phase if isinstance(result.figures, Training) else {}
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in phases.items())
    return [f"{first:.1f} of {result.seconds:.1f} s were seconds to the first step{f': {parts}' if parts else ''}"]
