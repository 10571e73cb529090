"""Progress watch: the newest step of the chief's child, when it changed, and whether a generation makes progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer.job.spec import Deadlines
from trainer.protocol.child import ChildStatus

WAITS_SECONDS = 10.0
"""The log names a task that indexes its files once the chief's child has waited for longer."""


@dataclass
class Progress:
    """Distinguishes a repeated crash from several different ones. Survives the chief's restarts."""

    step: int = 0
    """The highest step reached in any generation."""
    generations_without_progress: int = 0
    """Consecutive generations, including the present one, that did not exceed it."""


@dataclass
class ProgressWatch:
    """Progress of the chief's child and of those that it waits for, and the time since all of it has been unchanged."""

    progress: Progress
    since: float
    """Time when any of the following last changed, or the generation formed."""
    step: int = 0
    finishing: bool = False
    """Whether training has ended, and the final evaluation and export run."""
    evaluating: bool = False
    """Whether callbacks and a validation run at the end of an epoch, or test data are read before the first step."""
    indexed: int | None = None
    """Changes while the child indexes its files, before its first step."""
    has_index: bool = False
    """Whether it has indexed them, and waits for those that still do so."""
    others: dict[str, int] = field(default_factory=dict)
    """`indexed` of the other tasks whose children index files, by the name of the task; the last to change is last."""
    worker_steps: dict[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.formed(self.since)

    def formed(self, now: float) -> None:
        """Resets the watch when a generation has formed."""
        self.since = self._own_since = now
        self.others, self._named = {}, False

    def update(
        self, status: ChildStatus, workers: Mapping[str, ChildStatus], resume_step: int, now: float
    ) -> list[str]:
        """Takes the status of the chief's child; returns the ps-workers that made a step since the last one.

        Args:
            workers: the coordinator's measurements of each ps-worker.
        """
        step = status.step or 0
        new = step, status.finishing, status.evaluating, status.indexed, status.has_index
        if new != (self.step, self.finishing, self.evaluating, self.indexed, self.has_index):
            self.step, self.finishing, self.evaluating, self.indexed, self.has_index = new
            self.since = self._own_since = now
            if step > max(self.progress.step, resume_step):
                self.progress.step, self.progress.generations_without_progress = step, 0
        steps = {name: row.step for name, row in workers.items()}
        stepped = [name for name, step in steps.items() if step != self.worker_steps.get(name)]
        self.worker_steps |= steps
        return stepped

    def indexes(self, name: str, indexed: int | None, now: float) -> bool:
        """Takes another task's progress with its index, None if it makes none; returns whether it is the first task
        that the job has waited for."""
        if self.others.get(name) == indexed:
            return False
        self.since = now
        self.others.pop(name, None)
        if indexed is not None:
            self.others[name] = indexed
        first = bool(self.waits_for) and not self._named and now - self._own_since > WAITS_SECONDS
        self._named = self._named or first
        return first

    @property
    def waits_for(self) -> str:
        """The task that the chief's child waits for, because it indexes its files; empty if there is none."""
        return next(reversed(self.others), "") if self.has_index else ""

    def overdue(self, deadlines: Deadlines, now: float) -> bool:
        """Whether the deadline has passed: deadlines.evaluation while finishing or evaluating, else
        deadlines.progress."""
        evaluates = self.finishing or self.evaluating
        return now - self.since > (deadlines.evaluation if evaluates else deadlines.progress)
