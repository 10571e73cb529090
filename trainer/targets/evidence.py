"""`trainer debug`: one archive of all that there is of a job, and a verdict on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from trainer import __version__
from trainer.debug import archive as archives
from trainer.debug.archive import Archive
from trainer.debug.facts import Facts, Moment, TaskFacts
from trainer.debug.page import page
from trainer.debug.redaction import Redactor
from trainer.debug.verdict import Verdict, verdict
from trainer.job.errors import TrainerError, UserError
from trainer.job.load import read_text
from trainer.job.spec import JobSpec
from trainer.job.yaml_text import parse
from trainer.model_dir.result import Computed, Result, Training
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

    def collect(archive: Archive) -> Facts:
        if job.spec:
            archive.document("spec.json", job.spec.model_dump(mode="json", exclude_defaults=True))
        try:
            facts = target.debug(job, archive)
        except TrainerError as error:
            if job.spec is None:
                raise
            facts = _refused(archive, job.name, error)
        if facts.phase == "running":
            with archive.part("stacks/now.txt"):
                archive.text("stacks/now.txt", "\n".join([*describe(target.stacks(job)), ""]))
        if facts.problems and not facts.phase and job.spec:
            try:
                refuse(job.spec)
            except TrainerError as error:
                facts.problems, facts.code = [*_lines(archive, error), *facts.problems], error.code
        return facts

    return _write(collect, Path(job.name).resolve().name, machine.known_secrets(job.spec), output)


def write_refused(path: Path, error: UserError, output: Path | None) -> Debugged:
    """Writes the archive of a job whose spec, the file at path, is refused."""

    def collect(archive: Archive) -> Facts:
        with archive.part("spec.json"):
            archive.document("spec.json", parse(read_text(path), str(path)))
        return _refused(archive, path.stem, error)

    return _write(collect, path.stem, machine.known_secrets(None), output)


def _refused(archive: Archive, name: str, error: TrainerError) -> Facts:
    """What is known of a job that never started."""
    return Facts(name, "which was never started", code=error.code, problems=_lines(archive, error))


def _write(collect: Callable[[Archive], Facts], name: str, known: Mapping[str, str], output: Path | None) -> Debugged:
    """Writes an archive with what `collect` adds to it, and the page of what that returns."""
    now = time.gmtime()
    folder = f"{name}-debug-{time.strftime('%Y%m%dT%H%M%SZ', now)}"
    path = output or Path(f"{folder}.zip")
    found: list[Verdict] = []

    def fill(archive: Archive) -> None:
        facts = collect(archive)
        found.append(verdict(facts))
        made = f"made {time.strftime('%Y-%m-%d %H:%M:%S', now)} UTC by trainer {__version__}"
        archive.page("index.html", page(facts, found[0], archive.entries, made))

    size = archives.write(path, folder, Redactor(known), fill)
    return Debugged(path, size, found[0])


def _lines(archive: Archive, error: TrainerError) -> list[str]:
    return archive.clean(str(error)).split("\n")


def take(archive: Archive, facts: Facts, overview: JobOverview) -> None:
    """Takes over what `trainer status` shows."""
    hide = archive.clean
    facts.job, facts.phase = overview.name, overview.phase
    facts.code = overview.code if overview.phase in ("done", "failed") else None
    facts.message = hide(overview.last_line or "") if overview.phase == "failed" else ""
    facts.tasks |= {
        name: TaskFacts(row.state, row.code or None, hide(row.reason or ""), row.node or "", row.restarts)
        for name, row in overview.tasks.items()
    }
    if overview.job:
        archive.document("status.json", overview.job.document())
        facts.moments += [
            Moment(hide(event.text), time=event.time, path="status.json") for event in overview.job.events
        ]
        for number, each in enumerate(overview.job.hangs, 1):
            archive.text(f"stacks/hang-{number}.txt", "\n".join([*describe(each), ""]))
    if isinstance(overview.job, Result):
        facts.remarks += [*map(hide, overview.job.warnings), *_slow_start(overview.job)]
    if isinstance(overview.job, JobStatus):
        facts.waiting_for = hide(overview.job.waiting_for or "")
        facts.chief = overview.job.task
        facts.remarks += [hide(text) for text in overview.job.warnings]


def _slow_start(result: Result) -> list[str]:
    """A remark on a job that took longer to its first step than from there to its end."""
    first = None if isinstance(result.figures, Computed) else result.figures.seconds_to_first_step
    if first is None or first < result.seconds / 2:
        return []
    phases = result.figures.seconds_by_phase if isinstance(result.figures, Training) else {}
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in phases.items())
    return [f"{first:.1f} of {result.seconds:.1f} s were seconds to the first step{f': {parts}' if parts else ''}"]
