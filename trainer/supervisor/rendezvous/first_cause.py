"""Finds the first cause when programs end: the peers of a lost task end a moment later, with errors of their own, and
so do those of a task whose program has exited with 0 well before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer.protocol.reports import Report

SETTLE_SECONDS = 1.0
"""A task whose program ended with an error is not the cause if another one is found within this time."""
CULPRIT_SECONDS = 10.0
"""The same for an error that a lost peer causes, while other programs still run: TensorFlow takes seconds to end the
program that raised, and its peers may be faster."""
EARLY_SECONDS = 3.0
"""Programs that train together end well within this time of each other."""
_BLAMES = 2


@dataclass(frozen=True)
class Death:
    """The end of one task's program in this generation."""

    report: Report
    time: float

    @property
    def rank(self) -> int:
        """How likely it is a consequence of another one: 0 if a signal ended it, 1 with an error of its own, 2 with an
        error that a lost peer may cause."""
        loss = self.report.loss
        return 0 if loss is None else _BLAMES if loss.blames_peer else 1 if loss.ends_the_job else 0


class Deaths:
    """Those of one generation."""

    def __init__(self) -> None:
        self._found: dict[str, Death] = {}
        self._done: dict[str, float] = {}
        """When programs have exited with 0."""
        self._told: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._found)

    def clear(self) -> None:
        self._found.clear()
        self._done.clear()
        self._told.clear()

    def done(self, task: str, now: float) -> None:
        """A program has exited with 0; only the first report of it counts."""
        self._done.setdefault(task, now)

    def newly_early(self, now: float) -> list[str]:
        """The tasks whose programs have exited with 0 a while before the job's end, each once."""
        early = [name for name, time in self._done.items() if name not in self._told and now - time >= EARLY_SECONDS]
        self._told.update(early)
        return early

    def before(self, cause: Report) -> tuple[str, float] | None:
        """The task whose program exited with 0 before this one ended, first of all, and how many seconds before."""
        death = self._found[cause.task]
        name, time = min(self._done.items(), key=lambda each: each[1], default=("", death.time))
        return (name, death.time - time) if time < death.time else None

    def add(self, report: Report, now: float) -> None:
        """Adds how a task's program ended; only the first report of it counts."""
        self._found.setdefault(report.task, Death(report, now))

    def cause(self, heard: Mapping[str, float], now: float) -> Report | None:
        """The report of the first cause, once no other task can be it.

        Args:
            heard: when each task that is not known to be lost last reported. A task that has not reported since the
                first error may be lost: it is waited for until it reports, or its loss is noticed.
        """
        if not self._found:
            return None
        first = min(self._found.values(), key=lambda each: (each.rank, each.time))
        if first.rank == 0:
            return first.report
        since = min(each.time for each in self._found.values())
        running = [seen for name, seen in heard.items() if name not in self._found]
        seconds = CULPRIT_SECONDS if first.rank == _BLAMES and running else SETTLE_SECONDS
        return first.report if all(seen > since for seen in running) and now - since >= seconds else None
