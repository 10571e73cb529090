"""The lines of all tasks at the chief, which asks for them while a page shows logs."""

from __future__ import annotations

from collections.abc import Callable, Collection

from trainer import clocks
from trainer.page.lines import Lines, LogQuery
from trainer.protocol.reports import NOBODY_LOOKS, Report
from trainer.supervisor.task.task_logs import TaskLogs

LOOKS_SECONDS = 15.0
"""How long lines are kept after a page's last request."""


class JobLogs:
    """Each task is asked for the lines after those that came from it."""

    def __init__(self, own_name: str, own: TaskLogs, clock: Callable[[], float] = clocks.monotonic) -> None:
        self._own_name, self._own, self._clock = own_name, own, clock
        self._lines = Lines()
        self._looked: float | None = None
        self._have: dict[str, tuple[str, int]] = {}
        """The incarnation of each task, and the number of the last line that came from it."""

    def look(self) -> bool:
        """A page asks for lines. Returns whether none did before."""
        begins, self._looked = self._looked is None, self._clock()
        self.tick()
        return begins

    def have_all(self, tasks: Collection[str]) -> bool:
        """Whether lines of each of these tasks have come."""
        return self._have.keys() >= set(tasks)

    def tick(self) -> None:
        """To be called each second: takes the chief's own lines, and forgets all lines if no page shows them."""
        if self._looked is None:
            return
        if self._clock() - self._looked > LOOKS_SECONDS:
            self._looked = None
            self._own.want(NOBODY_LOOKS)
            self._lines.clear()
            self._have.clear()
            return
        after = self.after(self._own_name, "")
        self._own.want(after)
        self._add(self._own_name, "", *self._own.lines(after))

    def after(self, task: str, incarnation: str) -> int:
        """The number of the last line of a task's process that is here; NOBODY_LOOKS if no page shows them."""
        if self._looked is None:
            return NOBODY_LOOKS
        known, last = self._have.get(task, ("", 0))
        return last if known == incarnation else 0

    def take(self, report: Report) -> None:
        """Takes the lines in a report, if they are new."""
        if self._looked is not None and report.lines:
            self._add(report.task, report.incarnation, report.first_line, report.lines)

    def _add(self, task: str, incarnation: str, first: int, lines: list[tuple[float, str]]) -> None:
        last = self.after(task, incarnation)
        new = lines[max(0, last + 1 - first) :]
        if not new:
            return
        self._lines.left_out += max(0, first - last - 1)
        self._lines.add(task, new)
        self._have[task] = (incarnation, first + len(lines) - 1)

    def find(self, query: LogQuery) -> dict[str, object]:
        """As Lines.find."""
        return self._lines.find(query)
