"""The chief's question for the stacks of all tasks, which they answer with their next reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from trainer import clocks
from trainer.model_dir.stacks import Stacks
from trainer.protocol.reports import Report
from trainer.protocol.stacks import TaskStacks
from trainer.supervisor.rendezvous import hang

ANSWER_SECONDS = 4.0
"""Time for the answers: a task takes its own stacks within three seconds, and reports at once."""
AGAIN_SECONDS = 20.0
"""Time between two questions because of a child that is silent: it reports that until it is killed."""
HANGS_KEPT = 5
Why: TypeAlias = Literal["asked", "standstill", "silence", "stall"]
"""Why stacks are wanted: a user asks, the next step takes longer than usual, a child gives no sign of life, or there is
no new step until the deadline."""
_HANGS: tuple[Why, ...] = ("silence", "stall")


class Gathering:
    """One question at a time. All times are of the chief's clock, but for `_asked_at`."""

    def __init__(self) -> None:
        self.number = 0
        """The number of the question that is open, or 0."""
        self.last = Stacks(0.0, "")
        self.hangs: list[Stacks] = []
        """The stacks of the newest moments at which the job hung."""
        self._why: Why = "asked"
        self._newest = int(clocks.wall())  # above those of the chief before
        self._since, self._asked_at = 0.0, 0.0
        self._answers: dict[str, TaskStacks] = {}

    def begin(self, now: float, why: Why) -> bool:
        """Asks, unless a question is open, whose answer will do; returns whether it was not."""
        if self.number:
            self._why = self._why if self._why in _HANGS else why
            return False
        if why == "silence" and self.hangs and now - self._since < AGAIN_SECONDS:
            return False
        self._newest = self.number = self._newest + 1
        self._why, self._answers, self._since, self._asked_at = why, {}, now, clocks.wall()
        return True

    def take(self, report: Report) -> None:
        if report.stacks is not None and report.stacks.number == self.number != 0:
            self._answers[report.task] = report.stacks

    def close(self, names: Iterable[str], now: float) -> Why | None:
        """Why the question was asked, once these tasks have answered or the time is over; otherwise None."""
        if not self.number:
            return None
        if now - self._since < ANSWER_SECONDS and any(name not in self._answers for name in names):
            return None
        self.number = 0
        self.last = hang.stacks(self._answers, self._asked_at)
        if self._why in _HANGS:
            self.keep_last()
        return self._why

    def keep_last(self) -> None:
        """The job hung when the last stacks were taken."""
        if self.last not in self.hangs:
            self.hangs = [*self.hangs[1 - HANGS_KEPT :], self.last]
