"""Reads all that one scrape of /metrics asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trainer.supervisor.metrics import usage
from trainer.supervisor.metrics.gpus import Gpus

if TYPE_CHECKING:
    from trainer.protocol.status import TaskStatus
    from trainer.supervisor.task.agent import Agent


class Scrape:
    """Of one task."""

    def __init__(self, agent: Agent, status: Callable[[], TaskStatus]) -> None:
        self._agent, self._status = agent, status
        self._gpus = Gpus(agent.spec.tasks.of(agent.task.type).gpus)

    async def __call__(self) -> bytes:
        from trainer.supervisor.metrics import prometheus  # its client for Prometheus takes 30 ms to import

        gpus = await self._gpus.read()
        child = self._agent.running
        workers = child.workers if child else {}
        return prometheus.text(self._status(), workers, self._agent.versions, usage.read(), gpus)
