"""A port that speaks HTTP, whose connections are bounded (connections.py)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from trainer.connections import BACKLOG, Connections, Guarded

LONGEST_BODY = 1 << 20
"""Maximum bytes of a request."""
LINGER_SECONDS = 2.0
"""How long the rest of a body that nobody reads may take to come."""
_PEERS_FAULTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)
_logger = logging.getLogger("trainer.control")
"""The logger of aiohttp, which logs a traceback even if a request is malformed or its sender disconnects."""
_logger.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], _PEERS_FAULTS)))
CONNECTIONS = web.AppKey("connections", Connections)


def application(connections: Connections, *middlewares: Callable[..., object]) -> web.Application:
    """An application for `listen`. A handler that reads a body calls `serves` of CONNECTIONS once it has come."""

    @web.middleware
    async def taking_turns(request: web.Request, handler: Handler) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            return await handler(request)
        if "Transfer-Encoding" in request.headers:  # no client of ours: each byte may be a piece, which costs 2 us
            transport.abort()
            return web.Response(status=411)
        if not request.can_read_body:
            connections.serves(transport)
        try:
            return await handler(request)
        finally:
            connections.waits(transport)

    app = web.Application(client_max_size=LONGEST_BODY, middlewares=[taking_turns, *middlewares])  # type: ignore[list-item]
    app[CONNECTIONS] = connections

    async def sweep(_: web.Application) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(connections.keep_closing_late())
        yield
        sweeping.cancel()

    app.cleanup_ctx.append(sweep)
    return app


class Port:
    """A port that is open."""

    def __init__(self, runner: web.AppRunner, server: asyncio.Server) -> None:
        self._runner, self._server = runner, server

    @property
    def number(self) -> int:
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        self._server.close()
        await self._runner.cleanup()


async def listen(app: web.Application, host: str | None, port: int) -> Port:
    """Opens a port for an application that was made by `application`.

    Raises:
        OSError, OverflowError: it cannot be used.
    """
    # handler_cancellation: a report is dropped when its sender disconnects, so it does not count as answered.
    # auto_decompress: 1 MB of gzip may unpack to 1 GB before the signature is checked. No task compresses its reports.
    runner = web.AppRunner(
        app, access_log=None, shutdown_timeout=0.5, logger=_logger, handler_cancellation=True,
        lingering_time=LINGER_SECONDS, auto_decompress=False,
    )  # fmt: skip
    await runner.setup()
    handlers, connections = runner.server, app[CONNECTIONS]
    assert handlers is not None

    def protocol() -> Guarded:
        return Guarded(handlers(), connections)

    loop = asyncio.get_running_loop()
    try:
        return Port(runner, await loop.create_server(protocol, host, port, backlog=BACKLOG, reuse_address=True))
    except (OSError, OverflowError):
        await runner.cleanup()
        raise
