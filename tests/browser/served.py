"""The page with its real routes, of a job that a test scripts."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.browser import scripted
from tests.browser.scripted import Document
from trainer.page.lines import LogQuery
from trainer.page.routes import routes


@dataclass
class Script:
    """What the page is told. It is a Source of trainer.page.routes."""

    document: Document = field(default_factory=scripted.document)
    lines: list[Document] = field(default_factory=scripted.lines)
    queries: list[LogQuery] = field(default_factory=list)
    queues: set[asyncio.Queue[str]] = field(default_factory=set)
    loop: asyncio.AbstractEventLoop | None = None
    url: str = ""

    async def state(self) -> str:
        return json.dumps(self.document)

    async def logs(self, query: LogQuery) -> str:
        self.queries.append(query)
        found = [
            line
            for line in self.lines
            if line["n"] > query.after
            and query.task in ("", line["task"])
            and query.search.lower() in line["text"].lower()
        ]
        return json.dumps({"lines": found[-query.limit :], "left_out": max(0, len(found) - query.limit)})

    def subscribe(self) -> asyncio.Queue[str]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        self.queues.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[str]) -> None:
        self.queues.discard(queue)

    def send(self, name: str, *documents: object) -> None:
        """Sends events to all pages that are open."""
        self._put("".join(f"event: {name}\ndata: {json.dumps(document)}\n\n" for document in documents))

    def end(self) -> None:
        """Closes all pages' streams of events."""
        self._put("")

    def wait_for(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not reached():
            assert time.monotonic() < deadline, "not within 20 s"
            time.sleep(0.01)

    def _put(self, text: str) -> None:
        def put() -> None:
            for queue in self.queues:
                queue.put_nowait(text)

        assert self.loop, "the page is not served"
        self.loop.call_soon_threadsafe(put)


@contextmanager
def served(script: Script, port: int = 0) -> Iterator[str]:
    """Serves it from a thread of its own; the address of the page."""
    runner: list[web.AppRunner] = []

    async def start() -> None:
        app = web.Application()
        app.add_routes(routes(script))
        runner.append(web.AppRunner(app, shutdown_timeout=0.1))
        await runner[0].setup()
        site = web.TCPSite(runner[0], "127.0.0.1", port, reuse_address=True)
        await site.start()
        script.url = f"http://127.0.0.1:{runner[0].addresses[0][1]}/"

    loop = script.loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield script.url
    finally:
        script.end()
        asyncio.run_coroutine_threadsafe(runner[0].cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
