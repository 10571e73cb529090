"""Status view: the chief's picture of the job as /status shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from trainer.protocol.status import End, JobStatus, TaskRow, TaskState, TaskStatus
from trainer.supervisor.rendezvous import Rendezvous


def job_status(
    own: TaskStatus, rendezvous: Rendezvous, now: float, *, last_checkpoint: int | None, seconds: float
) -> JobStatus:
    """The chief's own view, with what it knows of all tasks."""
    figures = {name: figure for name, figure in own.figures.items() if name != "workers"}
    workers = own.figures.get("workers")
    common = {field.name: getattr(own, field.name) for field in fields(TaskStatus)}
    return JobStatus(
        **{**common, "phase": rendezvous.phase, "generation": rendezvous.generation, "figures": figures},
        last_checkpoint=last_checkpoint,
        waiting_for=rendezvous.waiting_for(now) or None if rendezvous.phase == "forming" else None,
        seconds=seconds,
        events=rendezvous.events,
        tasks=task_rows(rendezvous, now, workers if isinstance(workers, dict) else {}),
        end=End(int(rendezvous.code), rendezvous.message) if rendezvous.over else None,
    )


def task_rows(
    rendezvous: Rendezvous, now: float, workers: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, TaskRow]:
    """One row per task, required or not; `workers` is what the coordinator measured of each ps-worker."""
    names = (*rendezvous.required, *rendezvous.evaluators)
    return {name: _row(rendezvous, name, now, (workers or {}).get(name, {})) for name in names}


def _row(rendezvous: Rendezvous, name: str, now: float, measured: Mapping[str, Any]) -> TaskRow:
    member = rendezvous.members.get(name)
    if member is None:
        return TaskRow(state="absent", figures=measured)
    report = member.report
    lost = now - member.seen > rendezvous.spec.deadlines.task_lost
    running = report.generation == rendezvous.generation and rendezvous.phase == "running"
    state: TaskState = "done" if rendezvous.phase == "done" else "lost" if lost else "running" if running else "waiting"
    return TaskRow(
        state=state,
        generation=report.generation,
        restarts=report.restarts,
        standby=report.standby,
        figures={**measured, **report.status},
    )
