"""How a job has ended, with which its page begins: its result, or the verdict on its failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from trainer.debug import ends
from trainer.debug.evidence import Evidence, Log
from trainer.debug.symptoms import plain
from trainer.debug.verdict import verdict
from trainer.job import errors
from trainer.job.errors import UserError
from trainer.job.messages import duration
from trainer.model_dir import journal, layout, result
from trainer.model_dir.result_rows import rows_of
from trainer.model_dir.stacks import Stacks
from trainer.protocol import facts
from trainer.protocol.facts import Ended, Entry, Formed
from trainer.protocol.status import End

MOST_HAPPENED = 8
"""The newest facts that are shown; the time line has all."""
LOG_BYTES = 64 << 10
"""Bytes of the log of the task that failed: its last words may be the reason."""


class Job(NamedTuple):
    """A job that has ended."""

    name: str
    chief: str
    model_dir: str
    end: End
    hangs: Sequence[Stacks] = ()


def outcome(job: Job, debug: str, hide: Callable[[str], str] = str) -> dict[str, object]:
    """The JSON object: kind, headline, rows of a name and a text, and what happened, each with its time.

    Args:
        debug: how to collect all that is known of the job.
        hide: returns a text as it may be shown.
    """
    kind, entries = errors.outcome(job.end.code), _entries(job.model_dir)
    if kind == "done":
        headline, rows = _result(job)
    else:
        headline, rows = _verdict(job, entries, debug)
    happened = [each for each in entries if each.fact.news and not isinstance(each.fact, Formed)]
    return {
        "kind": kind,
        "headline": hide(headline),
        "rows": [[name, hide(text)] for name, text in rows],
        "happened": [[each.time, hide(each.text)] for each in happened[-MOST_HAPPENED:]],
    }


def _entries(model_dir: str) -> list[Entry]:
    """What happened since the job began, or began anew."""
    lines = journal.read(model_dir)
    return Evidence("", "", journal=[entry for line in lines if (entry := facts.parse(line))]).of_this_start


def _result(job: Job) -> tuple[str, list[tuple[str, str]]]:
    try:
        found = result.read(job.model_dir)
    except UserError as error:
        return f"{job.name} succeeded", [("warning", str(error))]
    if found is None:
        return f"{job.name} succeeded", []
    rows = [row for row in rows_of(found) if row[0] != "status"]
    paths = {"model": layout.exported_model(job.model_dir), "result": layout.result(job.model_dir)}
    rows += [(name, str(path.absolute())) for name, path in paths.items() if path.exists()]
    return f"{job.name} succeeded after {duration(found.seconds)}", rows


def _verdict(job: Job, entries: Sequence[Entry], debug: str) -> tuple[str, list[tuple[str, str]]]:
    evidence = Evidence(
        job.name,
        "",
        errors.outcome(job.end.code),
        job.end.code,
        job.end.message,
        job.chief,
        journal=[*entries],
        hangs=[*job.hangs],
    )
    evidence.logs = [*_log(job.model_dir, evidence.ended, job.chief)]
    found = verdict(evidence)
    rows = [("in the code", found.place)] if found.place else []
    rows += [("more", text) for text in found.details]
    rows += [("to try", plain(each.advice)) for each in found.advice if not each.healthy]
    return found.headline, [*rows, ("exit code", f"{job.end.code}: {found.meaning}"), ("all that is known", debug)]


def _log(model_dir: str, ended: Ended | None, chief: str) -> Iterator[Log]:
    task = (ended.task if ended else None) or chief
    path = layout.logs(model_dir) / f"{task.replace(':', '-')}.log"
    try:
        head, tail, _ = ends.of_file(path, LOG_BYTES)
    except OSError:
        return
    yield Log("", (head + tail).decode(errors="replace"), task)
