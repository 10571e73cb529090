"""The report of the end of a job."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.job.cluster import Task
from trainer.job.errors import Exit
from trainer.job.spec import JobSpec
from trainer.protocol.facts import Ended, Entry
from trainer.supervisor.outside import webhook
from trainer.supervisor.outside.webhook import Ending
from trainer.supervisor.views.snapshot import Snapshot


class EndReport:
    """Follows the job of one chief for the report of its end."""

    def __init__(self, spec: JobSpec, task: Task) -> None:
        self._spec, self._task = spec, task
        self._snapshot: Snapshot | None = None
        self._ended: Entry | None = None
        self.figures: dict[str, object] = {}
        """The result's main figures, once there is a result."""
        self.told = False
        """Whether the end of the job was reported before: this start only finds it in model_dir."""

    def observe(self, snapshot: Snapshot, facts: Sequence[Entry]) -> None:
        self._snapshot = snapshot
        self._ended = next((each for each in facts if isinstance(each.fact, Ended)), self._ended)

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
            figures=self.figures or snapshot.job.figures,
            seconds=snapshot.job.seconds,
            generations=ended.generation,
            restarts=sum(snapshot.job.restarts_by_cause.values()),
        )
        await webhook.tell(self._spec, self._task, end, webhook.seconds_left(self._spec, leaving_since))
