"""A page on loopback, of a source that a test writes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import web

from trainer.page.lines import LogQuery
from trainer.page.routes import Source, routes


@dataclass
class Scripted:
    """What it shows."""

    queries: list[LogQuery] = field(default_factory=list)
    queues: list[asyncio.Queue[str]] = field(default_factory=list)
    ended: int = 0
    """Subscriptions that have ended."""
    most: int = 100
    """Events that may wait."""

    async def state(self) -> str:
        return '{"version": 1}'

    async def logs(self, query: LogQuery) -> str:
        self.queries.append(query)
        return '{"lines": []}'

    def subscribe(self) -> asyncio.Queue[str] | None:
        self.queues.append(asyncio.Queue(self.most))
        return self.queues[-1]

    def unsubscribe(self, queue: asyncio.Queue[str]) -> None:
        self.ended += 1


@contextlib.asynccontextmanager
async def serving(source: Source | None = None) -> AsyncIterator[str]:
    """Its address, without the slash at the end."""
    app = web.Application()
    app.add_routes(routes(source or Scripted()))
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
