"""The status of a job as text."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainer.job.messages import aligned, clock
from trainer.model_dir.result_rows import figure, rows_of
from trainer.protocol.status import JobStatus, TaskRow
from trainer.targets.base import ContainerState, JobOverview


def describe(overview: JobOverview) -> str:
    """A job's status as text: its phase and figures, and a line per task."""
    head, rows = [("phase", overview.phase)], {}
    if isinstance(overview.job, JobStatus):
        head += _figures(overview.job)
        rows = overview.job.tasks
    elif overview.job:
        head += rows_of(overview.job)
    texts = {"last line": overview.last_line, "next": overview.next, "unreadable": overview.unreadable}
    head += [(name, text) for name, text in texts.items() if text]
    head += [("warning", text) for text in overview.warnings or ()]
    table = ["", *aligned(_table(overview.tasks, rows))] if overview.tasks else []
    return "\n".join([*aligned(head), *table])


def _figures(job: JobStatus) -> list[tuple[str, str]]:
    names = ("step", "loss", "examples_per_second", "last_checkpoint")
    shown = {name: getattr(job, name) for name in names}
    rows = {name: figure(value) for name, value in shown.items() if value is not None}
    if "step" in rows and (total := job.steps):
        rows["step"] += f" of {figure(total)}"
    if job.seconds_left is not None and job.ending is None:
        rows["left"] = clock(job.seconds_left)
    notices = {
        "now": job.ending,
        "waiting for": job.waiting_for,
        "stalled": job.stalled,
        "straggler": job.straggler.text if job.straggler else None,
    }
    said = [(name, text) for name, text in notices.items() if text]
    return [*rows.items(), *said, *(("warning", text) for text in job.warnings)]


def _table(tasks: Mapping[str, ContainerState], known: Mapping[str, TaskRow]) -> list[tuple[str, ...]]:
    """A row per task, from the target and from the chief's status; without empty columns."""
    rows: list[tuple[str, ...]] = [
        ("task", "state", "code", "node", "step", "examples/s", "restarts", "generation", "reason")
    ]
    for name, row in tasks.items():
        own = known.get(name) or TaskRow(state="absent")
        cells = (
            row.code,
            row.node,
            own.step,
            own.examples_per_second,
            row.restarts + own.restarts,
            own.generation,
            row.reason,
        )
        rows.append((name, row.state, *map(_cell, cells)))
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    return list(zip(*columns, strict=True))


def _cell(value: object) -> str:
    rounded = round(value) if isinstance(value, float) and math.isfinite(value) else value
    return figure(rounded) if value else ""
