"""The control port: /healthz, /status and /metrics for any program, /report for the job's own supervisors. And, where
it is wanted, a port that serves /metrics alone.

A report changes only the chief's record of that task; no supervisor takes orders. If the job has a secret, reports and
replies are signed with it; everything else on this port is public.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import asdict

from aiohttp import web
from aiohttp.typedefs import Handler

from trainer.connections import Connections, most_connections
from trainer.job import environment
from trainer.job.errors import UserError
from trainer.job.names import is_loopback
from trainer.model_dir.files import json_text
from trainer.model_dir.stacks import Stacks
from trainer.page import access
from trainer.page.listen import CONNECTIONS, Port, application, listen
from trainer.protocol import reports
from trainer.protocol.log_lines import log_line
from trainer.protocol.reports import LONGEST_BODY, Identity, Reply, Report
from trainer.protocol.signature import HEADER, NOT_SIGNED, SENDER, is_signed, sign

Scrape = Callable[[], bytes]
Answer = Callable[[Report, int], Awaitable[Reply]]
Refuse = Callable[[str, str, str], None]
Ask = Callable[[], Awaitable[Stacks]]

STRANGERS_BYTES = 16 << 20
"""The most bytes of bodies that strangers have begun to send."""


async def serve(
    port: int,
    host: str | None,
    identity: Identity,
    status: Callable[[], Mapping[str, object]],
    more: Iterable[web.RouteDef] = (),
    names: Collection[str] = (),
    tasks: int = 1,
) -> Port:
    """Listens on the control port.

    Args:
        status: returns the document for /status (protocol/status.py).
        more: routes beside /healthz and /status, which every task answers.
        names: of the machines in the job's cluster.
        tasks: how many the job has.

    Raises:
        UserError: the port is taken.
    """

    @web.middleware
    async def under_our_name(request: web.Request, handler: Handler) -> web.StreamResponse:
        if why := access.foreign_name(request.remote, request.headers.get("Host", ""), names):
            raise web.HTTPForbidden(text=why)
        return await handler(request)

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response(asdict(identity))

    async def get_status(_: web.Request) -> web.Response:
        return web.json_response(status(), dumps=json_text)

    what = f"control port of {identity.task}"
    most = most_connections(tasks)
    app = application(
        Connections(most, what, log_line, own_user=host is not None and is_loopback(host)), under_our_name
    )
    app.add_routes([web.get("/healthz", healthz), web.get("/status", get_status), *more])
    fix = "change this task's port in TF_CONFIG (control port = TensorFlow port + 1000)"
    return await _listen(app, port, host, what, fix)


async def serve_metrics(port: int, host: str | None, identity: Identity, scrape: Scrape) -> Port:
    """Listens on a port for scrapers, which finds nothing but /metrics there.

    Raises:
        UserError: the port is taken.
    """
    what = f"port for metrics of {identity.task}"
    app = application(Connections(most_connections(), what, log_line))
    app.add_routes([metrics_route(scrape)])
    return await _listen(app, port, host, what, f"set {environment.METRICS_PORT} to another port")


async def _listen(app: web.Application, port: int, host: str | None, what: str, fix: str) -> Port:
    try:
        return await listen(app, host, port)
    except OSError as error:
        raise UserError(
            f"port {port} ({what}) cannot be used: {error.strerror}; stop what holds it, or {fix}"
        ) from None


def metrics_route(scrape: Scrape) -> web.RouteDef:
    """/metrics.

    Args:
        scrape: returns its text.
    """

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=scrape(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    return web.get("/metrics", metrics)


def stacks_route(ask: Ask) -> web.RouteDef:
    """/stacks, for the programs of this machine, or of this container, alone.

    Args:
        ask: asks all tasks for their stacks.
    """

    async def stacks(request: web.Request) -> web.Response:
        if why := access.refusal(request.remote, request.path, request.headers):
            raise web.HTTPForbidden(text=why)
        return web.json_response(asdict(await ask()))

    return web.get("/stacks", stacks)


def report_route(answer: Answer, refuse: Refuse = lambda *_: None, secret: bytes = b"") -> web.RouteDef:
    """/report, at which the chief gets the heartbeats of the other tasks.

    Nothing of a body is read as a report before its signature holds: what a stranger sends costs a digest.

    Args:
        answer: makes the reply to a report.
        refuse: called with peer, task and reason when a request is not a report of this job. The task is what the
            sender claims to be, or empty.
    """

    partial = dict[asyncio.Transport, int]()

    async def whole_body(request: web.Request, transport: asyncio.Transport, connections: Connections) -> bytes:
        if request.content.is_eof() or connections.trusts(transport):
            return await request.read()
        body = bytearray()
        try:
            while chunk := await request.content.readany():
                body += chunk
                if len(body) > LONGEST_BODY:
                    raise web.HTTPRequestEntityTooLarge(LONGEST_BODY, len(body))
                partial[transport] = len(body)
                if sum(partial.values()) > STRANGERS_BYTES:
                    next(iter(partial)).abort()  # of which the first byte has come first
        finally:
            partial.pop(transport, None)
        return bytes(body)

    async def report(request: web.Request) -> web.Response:
        peer, signature, transport = request.remote or "", request.headers.get(HEADER), request.transport
        connections = request.app[CONNECTIONS]
        if transport is None:
            raise ConnectionResetError
        try:
            body = await whole_body(request, transport, connections)
            connections.serves(transport)
            if not is_signed(signature, secret, b"report", body):
                refuse(peer, request.headers.get(SENDER, ""), NOT_SIGNED)
                raise web.HTTPForbidden(text=NOT_SIGNED)
            asked = reports.read_question(body)
        except web.HTTPRequestEntityTooLarge:
            refuse(peer, "", "is too long")
            raise
        except (ValueError, web.RequestPayloadError) as error:
            refuse(peer, "", "is not a report")
            raise web.HTTPBadRequest(text=f"not a report: {error}") from None
        connections.trust(transport)
        reply = reports.answer(await answer(asked.report, asked.known))
        signed = {HEADER: sign(secret, b"reply", (signature or "").encode(), reply)}
        return web.Response(body=reply, content_type="application/json", headers=signed)

    return web.post("/report", report)
