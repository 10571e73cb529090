"""What a job shows outside of itself: its run at MLflow, and the report of its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trainer.supervisor.outside import webhook
from trainer.supervisor.outside.tracking import Tracker
from trainer.supervisor.outside.webhook import Ending

if TYPE_CHECKING:
    from trainer.protocol.events import Figures
    from trainer.supervisor.chief.saved_state import Record
    from trainer.supervisor.children.child import Child
    from trainer.supervisor.rendezvous.state_machine import Rendezvous
    from trainer.supervisor.task.agent import Agent


class Observers:
    """Those of one chief, which follows the job with them while it has its place."""

    def __init__(self, agent: Agent, record: Record, rendezvous: Rendezvous) -> None:
        self._agent, self._record, self._rendezvous = agent, record, rendezvous
        self._tracker: Tracker | None = None
        self._child: Child | None = None
        """The newest; the agent forgets one that has ended."""
        self._reported: Figures = {}
        """What a child has reported last: a new one may not have yet."""
        self.figures: dict[str, object] = {}
        """The result's main figures, once there is a result."""
        self.told = False
        """Whether the end of the job was reported before: this start only finds it in model_dir."""

    def begin(self) -> None:
        """The chief leads the job."""
        spec, record = self._agent.spec, self._record
        if spec.tracking:
            started = record.state.started
            self._tracker = Tracker(spec, spec.tracking, self._agent.task, started, record.require_lease)

    def look(self) -> None:
        """Takes what is new; to be called at each beat."""
        self._child = child = self._agent.running or self._child
        if child:
            self._reported = child.status.figures or self._reported
        if self._tracker and self._agent.spec.program and child and child.status.step is not None:
            self._tracker.report(child.status.step, child.status.figures)

    async def tell(self) -> None:
        """The job has ended."""
        rendezvous = self._rendezvous
        if self.told:
            return
        self.look()
        end = Ending(
            code=rendezvous.code,
            message=rendezvous.message,
            step=rendezvous.watch.step,
            figures=self.figures or self._reported,
            seconds=self._record.seconds(),
            generations=rendezvous.generation,
            restarts=rendezvous.chronicle.restarts.total(),
        )
        spec, seconds = self._agent.spec, webhook.seconds_left(self._agent.spec, self._agent.leaving_since)
        await asyncio.gather(
            webhook.tell(spec, self._agent.task, end, seconds),
            *([self._tracker.end(end, seconds)] if self._tracker else []),
        )

    async def drop(self) -> None:
        """The chief has lost its place."""
        if self._tracker:
            await self._tracker.drop()
