"""Status view: the chief's state of the job, as shown by /status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from trainer.protocol.child import ChildStatus, together
from trainer.protocol.status import End, JobStatus, TaskRow, TaskState, TaskStatus
from trainer.supervisor.chief.stragglers import Stragglers
from trainer.supervisor.rendezvous.state_machine import Rendezvous


def job_status(
    own: TaskStatus,
    workers: Mapping[str, ChildStatus],
    rendezvous: Rendezvous,
    now: float,
    *,
    last_checkpoint: int | None,
    checkpoint: tuple[float, int] | None = None,
    seconds: float,
    stragglers: Stragglers,
) -> JobStatus:
    """The status of the chief and of all tasks; `workers` as in task_rows.

    Args:
        checkpoint: time and bytes of the last one.
    """
    written, size = checkpoint or (None, None)
    common = {field.name: getattr(own, field.name) for field in fields(TaskStatus)}
    return JobStatus(
        **{**common, "phase": rendezvous.phase, "generation": rendezvous.generation},
        last_checkpoint=last_checkpoint,
        checkpoint_time=written,
        checkpoint_bytes=size,
        restarts_by_cause=dict(rendezvous.chronicle.restarts),
        waiting_for=rendezvous.tasks.waiting_for(now) or None if rendezvous.phase == "forming" else None,
        seconds=seconds,
        events=rendezvous.chronicle.events,
        hangs=rendezvous.gathering.hangs,
        tasks={
            name: replace(row, shares=stragglers.shares.get(name))
            for name, row in task_rows(rendezvous, now, workers).items()
        },
        straggler=stragglers.straggler,
        end=End(int(rendezvous.code), rendezvous.message) if rendezvous.over else None,
    )


def task_rows(
    rendezvous: Rendezvous, now: float, workers: Mapping[str, ChildStatus] | None = None
) -> dict[str, TaskRow]:
    """One row per task, required or not; `workers` has the coordinator's measurements of each ps-worker."""
    names = (*rendezvous.tasks.required, *rendezvous.tasks.evaluators)
    return {name: _row(rendezvous, name, now, (workers or {}).get(name)) for name in names}


def _row(rendezvous: Rendezvous, name: str, now: float, measured: ChildStatus | None) -> TaskRow:
    member = rendezvous.tasks.members.get(name)
    if member is None:
        return TaskRow(state="absent", **vars(measured or ChildStatus()))
    report = member.report
    lost = now - member.seen > rendezvous.spec.deadlines.task_lost
    running = report.generation == rendezvous.generation and rendezvous.phase == "running"
    finished = rendezvous.phase == "done" or (report.finished and report.finished == rendezvous.generation)
    state: TaskState = "done" if finished else "lost" if lost else "running" if running else "waiting"
    return TaskRow(
        state=state,
        generation=report.generation,
        restarts=report.restarts,
        standby=report.standby,
        **vars(together(report.status, measured)),
    )
