"""What reports tell besides failures: a task that was lost alone runs again; an evaluator has scored a checkpoint."""

from __future__ import annotations

from trainer.protocol.facts import Back, Scored
from trainer.protocol.reports import Report


class Returns:
    """The tasks that restart alone and have no child, and since when. All times are of the clock of the rendezvous."""

    def __init__(self) -> None:
        self._away: dict[str, float] = {}

    def clear(self) -> None:
        """A generation has formed: all tasks are there."""
        self._away.clear()

    def lost(self, task: str, now: float) -> None:
        self._away.setdefault(task, now)

    def back(self, before: Report, report: Report, generation: int, now: float) -> Back | None:
        """The fact that the task of this report runs again.

        Args:
            before: its last report.
        """
        if report.generation != generation:
            if before.generation == generation:
                self.lost(report.task, now)
            return None
        since = self._away.pop(report.task, None)
        return None if since is None else Back(report.task, now - since)


class Scores:
    """The checkpoints that the evaluator has scored."""

    def __init__(self) -> None:
        self._last: int | None = None

    def new(self, report: Report) -> Scored | None:
        """The fact that the evaluator has scored another checkpoint."""
        status = report.status
        if status.step is None or status.step == self._last or not status.figures:
            return None
        self._last = status.step
        loss = {} if status.loss is None else {"loss": status.loss}
        return Scored(report.task, status.step, {**loss, **status.metrics})
