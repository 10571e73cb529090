"""What the chief shows of its job: its status, and at each beat a snapshot with the new facts for all observers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from trainer import clocks
from trainer.model_dir import checkpoint
from trainer.protocol.child import ChildStatus, with_rate
from trainer.protocol.facts import Checkpoint, Ended, Formed, Note, Slow
from trainer.protocol.log_lines import log_line
from trainer.protocol.status import JobStatus, TaskRow
from trainer.supervisor.chief import earlier_run
from trainer.supervisor.task import task_report
from trainer.supervisor.views import snapshot
from trainer.supervisor.views.pace import Pace
from trainer.supervisor.views.snapshot import Observer, Snapshot
from trainer.supervisor.views.standstill import Standstill
from trainer.supervisor.views.stragglers import Stragglers

if TYPE_CHECKING:
    from trainer.supervisor.chief.saved_state import Record
    from trainer.supervisor.rendezvous.state_machine import Rendezvous
    from trainer.supervisor.task.agent import Agent

OBSERVE_SECONDS = 1.0
"""Time between two snapshots."""
ROWS_A_SECOND = 300
"""Tasks whose rows are made anew each second: of more, the rows in a snapshot are older."""


class Reporter:
    def __init__(
        self,
        agent: Agent,
        record: Record,
        rendezvous: Rendezvous,
        warnings: list[str],
        observers: list[Observer],
    ) -> None:
        """
        Args:
            warnings: dangers to the job; the chief adds to it.
            observers: those that follow the job from its beginning.
        """
        self.observers = observers
        self._agent, self._record, self._rendezvous, self._warnings = agent, record, rendezvous, warnings
        self._pace = Pace(record.state.pace, clocks.wall(), continues=record.continues)
        self._stragglers = Stragglers(agent.spec.traits.collective)
        self._standstill = Standstill()
        self._snapshot: Snapshot | None = None
        self._reported: dict[str, object] = {}
        """The last figures of a child of the chief: one that has ended is forgotten."""
        self.rate: float | None = None
        """The examples per second of all tasks, when steps were made last."""
        self._checkpoint: tuple[int | None, tuple[float, int] | None] = None, None
        """The step of the newest checkpoint, and when it was written and its size in bytes."""
        self._observed = 0
        """Facts that the observers have had."""
        self._defects: set[tuple[type[Observer], type[Exception]]] = set()
        """Errors of observers that are in the log already: an observer fails at each beat."""

    def workers(self) -> Mapping[str, ChildStatus]:
        """The coordinator's measurements of each ps-worker."""
        child = self._agent.running
        return child.current_workers() if child else {}

    def status(self, now: float) -> JobStatus:
        """The status of the whole job.

        Args:
            now: by the clock of the rendezvous.
        """
        self._look_at_checkpoints()
        return self._status(now, snapshot.task_rows(self._rendezvous, now, self.workers()))

    def _look_at_checkpoints(self) -> None:
        """Finds the newest checkpoint on the volume, which may be slow: not at each beat."""
        directory, step = self._agent.spec.directory, earlier_run.newest_step(self._agent.spec)
        self._checkpoint = step, None if step is None else checkpoint.written(directory, step)

    def _status(self, now: float, rows: Mapping[str, TaskRow]) -> JobStatus:
        step, written = self._checkpoint
        own, over = task_report.task_status(self._agent), self._rendezvous.over
        status = snapshot.job_status(
            own,
            rows,
            self._rendezvous,
            now,
            last_checkpoint=step,
            checkpoint=written,
            seconds=self._record.seconds(),
            stragglers=self._stragglers,
            pace=self._pace,
            stalled=self.stalled,
        )
        figures = with_rate(self._reported, self.rate) if over and not own.figures else status.figures
        return replace(status, warnings=[*self._warnings], figures=figures)

    def observe(self, now: float) -> None:
        """Gives all observers what is new, once a second and at the end."""
        clock, last, rendezvous, child = clocks.wall(), self._snapshot, self._rendezvous, self._agent.running
        if child and child.status.figures:
            self._reported = child.status.figures
        if last and not rendezvous.over and 0 <= clock - last.time < OBSERVE_SECONDS:
            return
        generation = rendezvous.generation if rendezvous.phase == "running" else 0
        slowness = child.slowness if child else 1.0
        self._pace.look(clock, generation, child.status if child else None, slowness)
        tasks = len(rendezvous.tasks.required)
        new = rendezvous.chronicle.since(self._observed)
        if last is None or any(isinstance(each.fact, (Checkpoint, Ended, Formed)) for each in new):
            self._look_at_checkpoints()
        if child and child.status.figures:
            self._reported = child.status.figures
        if last and not rendezvous.over and 0 <= clock - last.rows_at < tasks / ROWS_A_SECOND:
            made = Snapshot(clock, self._status(now, last.job.tasks), last.used, last.rows_at)
        else:
            rows = snapshot.task_rows(rendezvous, now, self.workers())
            made = Snapshot(clock, self._status(now, rows), snapshot.used_of(rendezvous), clock)
        if not rendezvous.over and made.job.figures and slowness == 1:
            self.rate = made.job.examples_per_second
        self._snapshot, self._observed = made, rendezvous.chronicle.noted
        for observer in self.observers:
            try:
                observer.observe(made, new)
            except Exception as error:  # a defect there is none of the job
                self._complain(observer, error)

    def _complain(self, observer: Observer, error: Exception) -> None:
        defect = type(observer), type(error)
        if defect not in self._defects:
            self._defects.add(defect)
            log_line(f"warning: {type(observer).__name__}: {type(error).__name__}: {error}")

    def stands_still(self) -> bool:
        """Looks whether the next step takes longer than is usual; returns whether the tasks are to be asked where they
        are."""
        child = self._agent.running
        if child is not None and not child.alive:  # if the job ends now, it stood still at its end
            return False
        running = child is not None and self._rendezvous.phase == "running"
        return self._standstill.look(child.without_step if child and running else 0.0, clocks.wall())

    @property
    def stalled(self) -> str | None:
        """How long there has been no new step, and where the tasks are; None if that is not unusual."""
        return self._standstill.text(self._rendezvous.gathering.last)

    def keep_standstill(self) -> None:
        """The job ends: if it stands still, its stacks are those of a hang."""
        gathering = self._rendezvous.gathering
        if self._standstill.has_taken(gathering.last):
            gathering.keep_last()

    def compare_tasks(self, now: float) -> None:
        """Looks for a task that makes the others wait."""
        if self._rendezvous.phase != "running":
            self._stragglers = Stragglers(self._agent.spec.traits.collective)
        elif self._stragglers.due(now):
            rows = snapshot.task_rows(self._rendezvous, now, self.workers())
            if text := self._stragglers.look(rows, now):
                slow = self._stragglers.straggler
                self._rendezvous.note(Slow(slow.task, text) if slow else Note(text))
