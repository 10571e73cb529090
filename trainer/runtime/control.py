"""The control port: /healthz, /status and /metrics for anybody, /report for the job's own supervisors.

A report changes nothing but what the chief knows about that task; no supervisor takes orders.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from typing import Any

from aiohttp import ClientError, ClientResponseError, ClientSession, ClientTimeout, InvalidURL, TCPConnector, web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from trainer.job.errors import UserError
from trainer.runtime.rendezvous import Reply, Report

POLL_SECONDS = 1.0
"""How long the chief holds a report back while nothing changes."""
DIAL_SECONDS = 3.0

Answer = Callable[[Report, int], Awaitable[Reply]]
_GAUGES = {
    "step": "Last training step",
    "loss": "Loss of the last call",
    "accuracy": "Batch accuracy of the last call",
    "examples_per_second": "Training rate",
    "generation": "Generation of the cluster",
    "restarts": "Restarts of this task's child",
    "last_checkpoint": "Step of the last complete checkpoint",
}


async def serve(
    port: int, host: str | None, identity: dict[str, str], status: Callable[[], dict[str, Any]], answer: Answer | None
) -> web.AppRunner:
    """Listens on the control port.

    Args:
        answer: the chief's, for /report; None on other tasks.

    Raises:
        UserError: the port is taken.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response(identity)

    async def get_status(_: web.Request) -> web.Response:
        return web.json_response(status())

    async def metrics(_: web.Request) -> web.Response:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(identity, status()))
        return web.Response(body=generate_latest(registry), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def report(request: web.Request) -> web.Response:
        assert answer is not None
        try:
            body = await request.json()
            known, taken = int(body.pop("known")), Report(**body)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise web.HTTPBadRequest(text="not a report") from None
        return web.json_response(asdict(await answer(taken, known)))

    app = web.Application(client_max_size=1 << 20)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/status", get_status)
    app.router.add_get("/metrics", metrics)
    if answer is not None:
        app.router.add_post("/report", report)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
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


async def send_report(session: ClientSession, chief: tuple[str, int], report: Report, known: int) -> Reply:
    """Asks the chief what to do; held there until something changes, at most POLL_SECONDS.

    Raises:
        ConnectionError: with the reason in a few words.
    """
    body = {**asdict(report), "known": known}
    try:
        timeout = ClientTimeout(total=POLL_SECONDS + DIAL_SECONDS, sock_connect=DIAL_SECONDS)
        async with session.post(_url(chief, "/report"), json=body, timeout=timeout) as response:
            if response.status != 200:
                raise ConnectionError(f"{chief[0]}:{chief[1]} answers {response.status}: another program?")
            return Reply(**await response.json())
    except (ClientError, OSError, asyncio.TimeoutError, ValueError, TypeError) as error:
        raise ConnectionError(explain(error, chief)) from None


async def who_is_there(session: ClientSession, address: tuple[str, int]) -> dict[str, str]:
    """The identity of the supervisor at an address.

    Raises:
        ConnectionError: with the reason in a few words.
    """
    try:
        timeout = ClientTimeout(total=DIAL_SECONDS)
        async with session.get(_url(address, "/healthz"), timeout=timeout) as response:
            identity: dict[str, str] = dict(await response.json())
            return identity
    except (ClientError, OSError, asyncio.TimeoutError, ValueError, TypeError) as error:
        raise ConnectionError(explain(error, address)) from None


def explain(error: BaseException, address: tuple[str, int]) -> str:
    """What a failed dial means: `host does not resolve`, `host:port refused`, `no answer from host:port`."""
    host, port = address
    cause: BaseException | None = getattr(error, "os_error", None) or error
    if isinstance(error, ConnectionError) and not isinstance(error, ClientError) and not error.errno:
        return str(error)
    if isinstance(error, (ClientResponseError, ValueError, TypeError)) and not isinstance(error, InvalidURL):
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
