"""The control port: /healthz, /status and /metrics for any program, /report for the job's own supervisors.

A report changes nothing but what the chief knows about that task; no supervisor takes orders. Where the job has a
secret, reports and replies are signed with it; all else on this port is public.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    InvalidURL,
    TCPConnector,
    web,
)
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from trainer.job import environment
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.protocol import reports
from trainer.protocol.reports import Identity, Reply, Report
from trainer.protocol.signature import HEADER, is_signed, sign

POLL_SECONDS = 1.0
"""How long the chief holds a report back while nothing changes."""
DIAL_SECONDS = 3.0
_LONGEST_BODY = 1 << 20
_NOT_SIGNED = "lacks this job's secret"

Answer = Callable[[Report, int], Awaitable[Reply]]
Refuse = Callable[[str, str, str], None]
_GAUGES = {
    "step": "Last training step",
    "loss": "Loss of the last call",
    "accuracy": "Batch accuracy of the last call",
    "examples_per_second": "Training rate",
    "generation": "Generation of the cluster",
    "restarts": "Restarts of this task's child",
    "last_checkpoint": "Step of the last complete checkpoint",
}

_PEERS_FAULTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)
_logger = logging.getLogger("trainer.control")
"""For aiohttp, which logs a traceback also when a request is broken, or its sender gone in the middle of it."""
_logger.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], _PEERS_FAULTS)))


async def serve(
    port: int,
    host: str | None,
    identity: dict[str, str],
    status: Callable[[], dict[str, Any]],
    answer: Answer | None,
    refuse: Refuse = lambda *_: None,
    secret: bytes = b"",
) -> web.AppRunner:
    """Listens on the control port.

    Args:
        status: what /status answers (protocol/status.py).
        answer: the chief's, for /report; None on other tasks.
        refuse: called with peer, task and reason when /report gets what is no report of this job. The task is the one
            that the sender claims to be, or empty.

    Raises:
        UserError: the port is taken.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response(identity)

    async def get_status(_: web.Request) -> web.Response:
        return web.json_response(status(), dumps=_dumps)

    async def metrics(_: web.Request) -> web.Response:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(identity, status()))
        return web.Response(body=generate_latest(registry), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def report(request: web.Request) -> web.Response:
        assert answer is not None
        peer, signature = request.remote or "", request.headers.get(HEADER)
        try:
            body = await request.read()
            asked = reports.read_question(body)
        except web.HTTPRequestEntityTooLarge:
            refuse(peer, "", "is too long")
            raise
        except (ValueError, web.RequestPayloadError) as error:
            refuse(peer, "", "is no report")
            raise web.HTTPBadRequest(text=f"not a report: {error}") from None
        if not is_signed(signature, secret, b"report", body):
            refuse(peer, asked.report.task, _NOT_SIGNED)
            raise web.HTTPForbidden(text=_NOT_SIGNED)
        reply = reports.answer(await answer(asked.report, asked.known))
        signed = {HEADER: sign(secret, b"reply", (signature or "").encode(), reply)}
        return web.Response(body=reply, content_type="application/json", headers=signed)

    app = web.Application(client_max_size=_LONGEST_BODY)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/status", get_status)
    app.router.add_get("/metrics", metrics)
    if answer is not None:
        app.router.add_post("/report", report)
    # handler_cancellation: a report whose sender is gone is held no longer, and was not answered.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, logger=_logger, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, reuse_address=True).start()
    except OSError as error:
        await runner.cleanup()
        raise UserError(
            f"port {port} (control port of {identity['task']}) cannot be used: {error.strerror}; "
            "stop what holds it, or change this task's port in TF_CONFIG (control port = TensorFlow port + 1000)"
        ) from None
    return runner


def client() -> ClientSession:
    # No proxy from the environment: peers are dialled directly.
    return ClientSession(connector=TCPConnector(limit=0, ttl_dns_cache=1), trust_env=False)


async def send_report(
    session: ClientSession, chief: tuple[str, int], report: Report, known: int, secret: bytes = b""
) -> Reply:
    """Asks the chief what to do; held there until something changes, at most POLL_SECONDS.

    Raises:
        ConnectionError: with the reason in a few words.
        TrainerError: the chief refuses it for its signature.
    """
    body = reports.question(report, known)
    signature = sign(secret, b"report", body)
    headers = {"Content-Type": "application/json", HEADER: signature}
    try:
        timeout = ClientTimeout(total=POLL_SECONDS + DIAL_SECONDS, sock_connect=DIAL_SECONDS)
        async with session.post(_url(chief, "/report"), data=body, headers=headers, timeout=timeout) as response:
            reply = await _read(response)
            if response.status == web.HTTPForbidden.status_code and reply == _NOT_SIGNED.encode():
                raise TrainerError(
                    f"{report.task} was given another secret than its chief; give {environment.SECRET} or "
                    f"{environment.SECRET_FILE} to all tasks of a job, the same to each, or to none",
                    Exit.MISMATCH,
                )
            if response.status != web.HTTPOk.status_code:
                raise ConnectionError(f"{chief[0]}:{chief[1]} answers {response.status}: another program?")
            if not is_signed(response.headers.get(HEADER), secret, b"reply", signature.encode(), reply):
                raise ConnectionError(f"{chief[0]}:{chief[1]} answers without this job's secret: another program?")
            return reports.read_answer(reply)
    except (ClientError, OSError, asyncio.TimeoutError, ValueError) as error:
        raise ConnectionError(explain(error, chief)) from None


async def who_is_there(session: ClientSession, address: tuple[str, int]) -> Identity:
    """The identity of the supervisor at an address.

    Raises:
        ConnectionError: with the reason in a few words.
    """
    try:
        timeout = ClientTimeout(total=DIAL_SECONDS)
        async with session.get(_url(address, "/healthz"), timeout=timeout) as response:
            return reports.read_identity(await _read(response))
    except (ClientError, OSError, asyncio.TimeoutError, ValueError) as error:
        raise ConnectionError(explain(error, address)) from None


async def _read(response: ClientResponse) -> bytes:
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _LONGEST_BODY:
            raise ValueError("the answer is too long")
    return body


def explain(error: BaseException, address: tuple[str, int]) -> str:
    """What a failed dial means: `host does not resolve`, `host:port refused`, `no answer from host:port`."""
    host, port = address
    cause: BaseException | None = getattr(error, "os_error", None) or error
    if isinstance(error, ConnectionError) and not isinstance(error, ClientError) and not error.errno:
        return str(error)
    if isinstance(error, (ClientResponseError, ValueError)) and not isinstance(error, InvalidURL):
        return f"{host}:{port} answers, but is no supervisor: another program?"
    if isinstance(cause, socket.gaierror) or type(error).__name__ == "ClientConnectorDNSError":
        return f"{host} does not resolve (DNS)"
    if isinstance(cause, ConnectionRefusedError):
        return f"{host}:{port} refused"
    if isinstance(cause, asyncio.TimeoutError):
        return f"no answer from {host}:{port}"
    return f"{host}:{port}: {getattr(cause, 'strerror', None) or cause or type(error).__name__}"


def _url(address: tuple[str, int], path: str) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"http://{host}:{address[1]}{path}"


def _dumps(value: Any) -> str:
    """JSON as every parser reads it: without NaN and infinity, which a figure of the user's may be."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None


class _Collector:
    """Turns /status into gauges at the moment of a scrape."""

    def __init__(self, identity: dict[str, str], status: dict[str, Any]) -> None:
        self._labels = {"job": identity["job"], "task": identity["task"]}
        self._status = status

    def collect(self) -> Iterable[Metric]:
        for name, help_text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"trainer_{name}", help_text, labels=list(self._labels))
            if isinstance(value := self._status.get(name), (int, float)):
                gauge.add_metric(list(self._labels.values()), value)
                yield gauge
