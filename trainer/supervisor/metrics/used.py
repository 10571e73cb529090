"""What a task uses, measured at intervals for the page of its job."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from trainer.protocol.reports import Used
from trainer.supervisor.metrics import usage
from trainer.supervisor.metrics.gpus import Gpu, Gpus
from trainer.supervisor.metrics.usage import Usage

if TYPE_CHECKING:
    from trainer.supervisor.task.agent import Agent

SECONDS = 5.0


async def keep(agent: Agent) -> None:
    """Measures for as long as the task lasts."""
    gpus = Gpus(agent.spec.tasks.of(agent.task.type).gpus)
    before, then = usage.read(), time.monotonic()
    while True:
        await asyncio.sleep(SECONDS)
        now, found = time.monotonic(), usage.read()
        agent.used = of(before, found, now - then, await gpus.read())
        before, then = found, now


def of(before: Usage | None, now: Usage | None, seconds: float, gpus: list[Gpu]) -> Used:
    """
    Args:
        seconds: between the two.
    """
    shares = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    sizes = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    return Used(
        cpu=_rate(before and before.cpu_seconds, now and now.cpu_seconds, seconds),
        memory=now and now.memory,
        gpu=sum(shares) / len(shares) if shares else None,
        gpu_memory=sum(sizes) if sizes else None,
        received=_rate(before and before.received, now and now.received, seconds),
        sent=_rate(before and before.sent, now and now.sent, seconds),
    )


def _rate(before: float | None, now: float | None, seconds: float) -> float | None:
    """None too where a counter has begun anew."""
    if before is None or now is None or now < before:
        return None
    return (now - before) / seconds
