"""The routes of a job's page. What they show comes from a source: the chief, or the files of a job that has ended.

GET /               the page
GET /page/NAME      its scripts and styles
GET /page/state     the whole document (document.py)
GET /page/events    server-sent events: what has changed since
GET /page/logs      lines of all tasks
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Protocol

from aiohttp import web

from trainer.page import access
from trainer.page.lines import DEFAULT_LINES, MOST_LINES, LogQuery

STATIC = Path(__file__).parent / "static"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
KEEP_ALIVE_SECONDS = 15.0
"""A reader is sent a comment when there was no event for this long, so that proxies keep the connection."""
WRITE_SECONDS = 10.0
"""A reader that takes longer to read an event is gone, or stopped: its browser asks again."""
MOST_READERS = 32
"""The most readers that are sent events at the same time."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Source(Protocol):
    """What a page shows. All texts are JSON."""

    async def state(self) -> str:
        """The whole document."""

    async def logs(self, query: LogQuery) -> str:
        """Lines of tasks, the oldest first: {"lines": [...], "left_out": N}."""

    def subscribe(self) -> asyncio.Queue[str] | None:
        """Events from now on, each as `event: NAME\\ndata: TEXT\\n\\n`, and an empty text after the last one; None if
        there are none."""

    def unsubscribe(self, queue: asyncio.Queue[str]) -> None:
        """Ends a subscription."""


def routes(source: Source, names: Collection[str] | None = None) -> list[web.RouteDef]:
    """The routes of a page that shows what a source has.

    Args:
        names: as in access.refusal.
    """
    readers = 0

    def guarded(handler: Handler) -> Handler:
        async def guard(request: web.Request) -> web.StreamResponse:
            if why := access.refusal(request.remote, request.path, request.headers, names):
                return web.Response(status=403, text=f"{why}\n", headers=access.HEADERS)
            return await handler(request)

        return guard

    async def state(_: web.Request) -> web.Response:
        return _json(await source.state())

    async def logs(request: web.Request) -> web.Response:
        try:
            query = _log_query(request)
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n", headers=access.HEADERS)
        return _json(await source.logs(query))

    async def events(request: web.Request) -> web.StreamResponse:
        nonlocal readers
        if readers >= MOST_READERS:
            return web.Response(status=503, text=f"{MOST_READERS} pages are open already\n", headers=access.HEADERS)
        queue = source.subscribe()
        if queue is None:  # with this status a browser does not ask again
            return web.Response(status=204, headers=access.HEADERS)
        readers += 1
        try:
            return await _stream(request, queue)
        finally:
            readers -= 1
            source.unsubscribe(queue)

    return [
        web.get("/", guarded(_file)),
        web.get("/page/state", guarded(state)),
        web.get("/page/events", guarded(events), allow_head=False),
        web.get("/page/logs", guarded(logs)),
        web.get("/page/{name:.+}", guarded(_file)),
    ]


async def _file(request: web.Request) -> web.Response:
    """A file of the page. A name such as views/logs.js is looked up in a list of all: none leads out of the folder."""
    name = request.match_info.get("name", "index.html")
    found = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.suffix in KINDS}
    if name not in found:
        return web.Response(status=404, text="no such file\n", headers=access.HEADERS)
    body = await asyncio.to_thread(found[name].read_bytes)
    return web.Response(body=body, content_type=KINDS[found[name].suffix], charset="utf-8", headers=access.HEADERS)


async def _stream(request: web.Request, queue: asyncio.Queue[str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={**access.HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    # The end of a reader is no error: ConnectionResetError, or a timeout if it has stopped to read.
    with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
        await asyncio.wait_for(response.write(b": begin\n\n"), WRITE_SECONDS)
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), KEEP_ALIVE_SECONDS)
            except asyncio.TimeoutError:
                event = ": still here\n\n"
            if not event:
                break
            await asyncio.wait_for(response.write(event.encode()), WRITE_SECONDS)
    return response


def _json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json", headers=access.HEADERS)


def _log_query(request: web.Request) -> LogQuery:
    """
    Raises:
        ValueError: a number is none.
    """
    given = request.query
    numbers = {}
    for name, default, most in (("after", 0, 2**53), ("limit", DEFAULT_LINES, MOST_LINES)):
        text = given.get(name, str(default))
        if not (text.isascii() and text.isdigit() and int(text[:20]) <= most):
            raise ValueError(f"{name}: {text[:20]!r}: must be a number, 0 to {most}")
        numbers[name] = int(text)
    return LogQuery(**numbers, task=given.get("task", ""), search=given.get("search", ""))
