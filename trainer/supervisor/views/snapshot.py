"""What the chief knows of its job at one moment: its /status, and what all observers of the job get at each beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol

from trainer.protocol import after_training
from trainer.protocol.child import ChildStatus, together, with_rate
from trainer.protocol.facts import Entry
from trainer.protocol.reports import Used
from trainer.protocol.status import End, JobStatus, TaskRow, TaskState, TaskStatus
from trainer.supervisor.rendezvous.state_machine import Rendezvous
from trainer.supervisor.views.pace import Pace
from trainer.supervisor.views.stragglers import Stragglers


@dataclass(frozen=True)
class Snapshot:
    """The job at one moment. Nothing in it changes afterwards."""

    time: float
    """Seconds since the epoch."""
    job: JobStatus
    used: Mapping[str, Used]
    """What each task uses, where that is known."""
    rows_at: float
    """When the rows of the tasks were made: those of very many tasks are made less often."""


class Observer(Protocol):
    """Follows a job. The chief goes on if one raises an exception; it must not block."""

    def observe(self, snapshot: Snapshot, facts: Sequence[Entry]) -> None:
        """Takes the job as it is, and the facts since the last call. The last snapshot has the job's end."""


def job_status(
    own: TaskStatus,
    rows: Mapping[str, TaskRow],
    rendezvous: Rendezvous,
    now: float,
    *,
    last_checkpoint: int | None,
    checkpoint: tuple[float, int] | None = None,
    seconds: float,
    stragglers: Stragglers,
    pace: Pace,
    stalled: str | None = None,
) -> JobStatus:
    """The status of the chief and of all tasks.

    Args:
        checkpoint: time and bytes of the last one.
        stalled: how long there has been no new step, and where the tasks are.
    """
    written, size = checkpoint or (None, None)
    common = {field.name: getattr(own, field.name) for field in fields(TaskStatus)}
    of_job = {
        "phase": rendezvous.phase,
        "generation": rendezvous.generation,
        "last_checkpoint": last_checkpoint,
        "figures": with_rate(own.figures, rate_of_all(own, rows, coordinated=rendezvous.spec.traits.coordinated)),
        "ending": own.ending or _after_last_step(own, rendezvous),
    }
    return JobStatus(
        **{**common, **of_job},
        checkpoint_time=written,
        checkpoint_bytes=size,
        restarts_by_cause=dict(rendezvous.chronicle.restarts),
        waiting_for=rendezvous.tasks.waiting_for(now) or None if rendezvous.phase == "forming" else None,
        seconds=seconds,
        seconds_left=None if rendezvous.over else pace.seconds_left,
        goodput=pace.goodput,
        events=rendezvous.chronicle.events,
        hangs=rendezvous.gathering.hangs,
        tasks={name: replace(row, shares=stragglers.shares.get(name)) for name, row in rows.items()},
        straggler=stragglers.straggler,
        stalled=stalled if rendezvous.phase == "running" else None,
        end=End(int(rendezvous.code), rendezvous.message) if rendezvous.over else None,
    )


def rate_of_all(own: ChildStatus, rows: Mapping[str, TaskRow], *, coordinated: bool) -> float | None:
    """The examples per second of all tasks together; None if they are not known.

    Args:
        own: of the chief.
        coordinated: whether the chief's child measures the rate of all workers.
    """
    if coordinated:
        return own.examples_per_second
    rates = [row.examples_per_second for name, row in rows.items() if not name.startswith("evaluator:")]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _after_last_step(own: ChildStatus, rendezvous: Rendezvous) -> str | None:
    """What a loop of ours does between its last step and the final evaluation; of a program that is not known."""
    if rendezvous.phase != "running" or own.finishing or not own.made_all_steps:
        return None
    if rendezvous.spec.program:
        return after_training.PROGRAM
    return after_training.stage(after_training.SAVES, checks=rendezvous.spec.check_exports)


def used_of(rendezvous: Rendezvous) -> dict[str, Used]:
    """What each task uses, where that is known."""
    return {name: used for name, member in rendezvous.tasks.members.items() if (used := member.report.used)}


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
    status = together(member.report.status, measured)
    if rendezvous.spec.traits.coordinated and name == rendezvous.tasks.chief:  # its rate is that of all workers
        status = replace(status, figures=with_rate(status.figures, None))
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
        **vars(status),
    )
