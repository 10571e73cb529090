"""The control port: /healthz, /status and /metrics for any program, /report for the job's own supervisors. And, where
it is wanted, a port that serves /metrics alone.

A report changes only the chief's record of that task; no supervisor takes orders. If the job has a secret, reports and
replies are signed with it; everything else on this port is public.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import asdict

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from trainer.job import environment
from trainer.job.errors import UserError
from trainer.model_dir.files import json_text
from trainer.model_dir.stacks import Stacks
from trainer.page import access
from trainer.protocol import reports
from trainer.protocol.reports import LONGEST_BODY, Identity, Reply, Report
from trainer.protocol.signature import HEADER, NOT_SIGNED, is_signed, sign

Scrape = Callable[[], bytes]
Answer = Callable[[Report, int], Awaitable[Reply]]
Refuse = Callable[[str, str, str], None]
Ask = Callable[[], Awaitable[Stacks]]

_PEERS_FAULTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)
_logger = logging.getLogger("trainer.control")
"""The logger of aiohttp, which logs a traceback even if a request is malformed or its sender disconnects."""
_logger.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], _PEERS_FAULTS)))


async def serve(
    port: int,
    host: str | None,
    identity: Identity,
    status: Callable[[], Mapping[str, object]],
    more: Iterable[web.RouteDef] = (),
    names: Collection[str] = (),
) -> web.AppRunner:
    """Listens on the control port.

    Args:
        status: returns the document for /status (protocol/status.py).
        more: routes beside /healthz and /status, which every task answers.
        names: of the machines in the job's cluster.

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

    app = web.Application(client_max_size=LONGEST_BODY, middlewares=[under_our_name])
    app.add_routes([web.get("/healthz", healthz), web.get("/status", get_status), *more])
    fix = "change this task's port in TF_CONFIG (control port = TensorFlow port + 1000)"
    return await _listen(app, port, host, f"control port of {identity.task}", fix)


async def serve_metrics(port: int, host: str | None, identity: Identity, scrape: Scrape) -> web.AppRunner:
    """Listens on a port for scrapers, which finds nothing but /metrics there.

    Raises:
        UserError: the port is taken.
    """
    app = web.Application(client_max_size=LONGEST_BODY)
    app.add_routes([metrics_route(scrape)])
    fix = f"set {environment.METRICS_PORT} to another port"
    return await _listen(app, port, host, f"port for metrics of {identity.task}", fix)


async def _listen(app: web.Application, port: int, host: str | None, what: str, fix: str) -> web.AppRunner:
    # handler_cancellation: a report is dropped when its sender disconnects, so it does not count as answered.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, logger=_logger, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, reuse_address=True).start()
    except OSError as error:
        await runner.cleanup()
        raise UserError(
            f"port {port} ({what}) cannot be used: {error.strerror}; stop what holds it, or {fix}"
        ) from None
    return runner


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

    Args:
        answer: makes the reply to a report.
        refuse: called with peer, task and reason when a request is not a report of this job. The task is the one that
            the sender claims to be, or empty.
    """

    async def report(request: web.Request) -> web.Response:
        peer, signature = request.remote or "", request.headers.get(HEADER)
        try:
            body = await request.read()
            asked = reports.read_question(body)
        except web.HTTPRequestEntityTooLarge:
            refuse(peer, "", "is too long")
            raise
        except (ValueError, web.RequestPayloadError) as error:
            refuse(peer, "", "is not a report")
            raise web.HTTPBadRequest(text=f"not a report: {error}") from None
        if not is_signed(signature, secret, b"report", body):
            refuse(peer, asked.report.task, NOT_SIGNED)
            raise web.HTTPForbidden(text=NOT_SIGNED)
        reply = reports.answer(await answer(asked.report, asked.known))
        signed = {HEADER: sign(secret, b"reply", (signature or "").encode(), reply)}
        return web.Response(body=reply, content_type="application/json", headers=signed)

    return web.post("/report", report)
