"""The client of other supervisors' control ports: sends reports to the chief, and identifies supervisors."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    InvalidURL,
    TCPConnector,
)

from trainer.job import environment
from trainer.job.errors import Exit, TrainerError
from trainer.protocol import reports
from trainer.protocol.reports import LONGEST_BODY, LONGEST_IDENTITY, Identity, Reply, Report
from trainer.protocol.signature import HEADER, NOT_SIGNED, SENDER, is_signed, sign

HOLD_SECONDS = 1.0
"""How long the chief holds a report while nothing changes, if there are not too many tasks."""
REPORTS_A_SECOND = 600
"""More tasks report less often: a report takes the chief a fifth of a millisecond, and few of them have news."""
DIAL_SECONDS = 3.0
RETRY_SECONDS = 1.0
"""How long a report that is sent again may take to arrive."""
_OK, _FORBIDDEN = 200, 403


def hold_seconds(tasks: int, task_lost: float) -> float:
    """How long the chief of so many tasks holds a report while nothing changes.

    A task whose report or its reply is lost reports again in time: when its client gives up, DIAL_SECONDS later.
    """
    longest = min(task_lost / 2, task_lost - DIAL_SECONDS - RETRY_SECONDS)
    return max(HOLD_SECONDS, min(tasks / REPORTS_A_SECOND, longest))


def client() -> ClientSession:
    # Ignores proxies in the environment: connections to peers are direct. Unpacks nothing that a stranger sends.
    return ClientSession(connector=TCPConnector(limit=0, ttl_dns_cache=1), trust_env=False, auto_decompress=False)


async def send_report(
    session: ClientSession,
    chief: tuple[str, int],
    report: Report,
    known: int,
    secret: bytes = b"",
    hold: float = 0.0,
) -> Reply:
    """Sends a report to the chief, which holds it until something changes; returns the reply.

    Args:
        hold: for how many seconds, if that is more than HOLD_SECONDS.

    Raises:
        ConnectionError: with the reason in a few words.
        TrainerError: the chief refuses it for its signature.
    """
    body = reports.question(report, known)
    signature = sign(secret, b"report", body)
    headers = {"Content-Type": "application/json", HEADER: signature, SENDER: report.task}
    try:
        timeout = ClientTimeout(total=max(HOLD_SECONDS, hold) + DIAL_SECONDS, sock_connect=DIAL_SECONDS)
        async with session.post(_url(chief, "/report"), data=body, headers=headers, timeout=timeout) as response:
            reply = await _read(response)
            if response.status == _FORBIDDEN and reply == NOT_SIGNED.encode():
                raise TrainerError(
                    f"{report.task} has a different secret than its chief; give {environment.SECRET} or "
                    f"{environment.SECRET_FILE} to all tasks of a job, the same to each, or to none",
                    Exit.MISMATCH,
                )
            if response.status != _OK:
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
            return reports.read_identity(await _read(response, LONGEST_IDENTITY))
    except (ClientError, OSError, asyncio.TimeoutError, ValueError) as error:
        raise ConnectionError(explain(error, address)) from None


async def _read(response: ClientResponse, most: int = LONGEST_BODY) -> bytes:
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            raise ValueError("the answer is too long")
    return body


def explain(error: BaseException, address: tuple[str, int]) -> str:
    """The reason of a failed connection: `host does not resolve`, `host:port refused`, `no answer from host:port`."""
    host, port = address
    cause: BaseException | None = getattr(error, "os_error", None) or error
    if isinstance(error, ConnectionError) and not isinstance(error, ClientError) and not error.errno:
        return str(error)
    if isinstance(error, (ClientResponseError, ValueError)) and not isinstance(error, InvalidURL):
        return f"{host}:{port} answers, but is not a supervisor: another program?"
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
