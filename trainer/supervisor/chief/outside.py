"""What a job shows outside of itself: its run at MLflow, and the report of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from trainer.job.cluster import Task
from trainer.job.errors import Exit
from trainer.job.spec import JobSpec
from trainer.protocol.events import Figures
from trainer.protocol.facts import Ended, Entry
from trainer.supervisor.outside import webhook
from trainer.supervisor.outside.tracking import Tracker
from trainer.supervisor.outside.webhook import Ending
from trainer.supervisor.views.snapshot import Snapshot


class Outside:
    """The observers outside of one chief's job, which follow it while the chief has its place."""

    def __init__(self, spec: JobSpec, task: Task, require_lease: Callable[[], None]) -> None:
        self._spec, self._task, self._require_lease = spec, task, require_lease
        self._tracker: Tracker | None = None
        self._snapshot: Snapshot | None = None
        self._ended: Entry | None = None
        self._reported: Figures = {}
        """What a child has reported last: a new one may not have yet."""
        self.figures: dict[str, object] = {}
        """The result's main figures, once there is a result."""
        self.told = False
        """Whether the end of the job was reported before: this start only finds it in model_dir."""

    def begin(self, started: float) -> None:
        """The chief leads the job, which began at that time, in seconds since the epoch."""
        if self._spec.tracking:
            self._tracker = Tracker(self._spec, self._spec.tracking, self._task, started, self._require_lease)

    def observe(self, snapshot: Snapshot, facts: Sequence[Entry]) -> None:
        self._snapshot = snapshot
        self._ended = next((each for each in facts if isinstance(each.fact, Ended)), self._ended)
        self._reported = snapshot.job.figures or self._reported
        if self._tracker and self._spec.program and snapshot.job.step is not None:
            self._tracker.report(snapshot.job.step, snapshot.job.figures)

    async def tell(self, leaving_since: float | None) -> None:
        """Reports the end of the job.

        Args:
            leaving_since: when the chief was asked to stop, on the monotonic clock.
        """
        snapshot, ended = self._snapshot, self._ended
        if self.told or snapshot is None or ended is None or not isinstance(ended.fact, Ended):
            return
        end = Ending(
            code=Exit(ended.fact.code),
            message=ended.fact.message,
            step=ended.step,
            figures=self.figures or self._reported,
            seconds=snapshot.job.seconds,
            generations=ended.generation,
            restarts=sum(snapshot.job.restarts_by_cause.values()),
        )
        seconds = webhook.seconds_left(self._spec, leaving_since)
        await asyncio.gather(
            webhook.tell(self._spec, self._task, end, seconds),
            *([self._tracker.end(end, seconds)] if self._tracker else []),
        )

    async def drop(self) -> None:
        """The chief has lost its place."""
        if self._tracker:
            await self._tracker.drop()
