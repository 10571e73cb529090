"""A control port and its client, on loopback."""

import contextlib
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from typing import Any

from aiohttp import ClientSession

from trainer.protocol.child import ChildStatus
from trainer.protocol.facts import Cause, Loss
from trainer.protocol.reports import Identity, Reply, Report
from trainer.supervisor.control_port import peers, server

HOST = "127.0.0.1"


IDENTITY = Identity("j", "worker:1", "abc")
STATUS: dict[str, Any] = {
    "step": 30,
    "loss": 0.5,
    "generation": 2,
    "phase": "running",
    "text": "x",
    "last_checkpoint": None,
}
REPORT = Report(
    "worker:1", "abc", "digest", "spec", "workload", {"tensorflow": "2.21.0"},
    loss=Loss(Cause.ERROR, error="x", code=2), status=ChildStatus(step=5),
)  # fmt: skip
REPLY = Reply("running", 3, 500, version=7, step=520)


@contextlib.asynccontextmanager
async def serving(
    answer: server.Answer | None = None,
    status: Any = None,
    stacks: server.Ask | None = None,
    names: Collection[str] = (),
    **of_reports: Any,
) -> AsyncIterator[tuple[ClientSession, int]]:
    """A client, and the control port of a task."""
    more = [server.metrics_route(bytes)]
    if stacks:
        more.append(server.stacks_route(stacks))
    if answer:
        more.append(server.report_route(answer, **of_reports))
    opened = await server.serve(0, HOST, IDENTITY, lambda: status or STATUS, more, names)
    try:
        async with peers.client() as session:
            yield session, opened.number
    finally:
        await opened.close()


async def get(session: ClientSession, port: int, path: str) -> tuple[int, str]:
    async with session.get(f"http://{HOST}:{port}{path}") as response:
        return response.status, await response.text()


async def answer_at_once(report: Report, known: int) -> Reply:
    return replace(REPLY, message=f"{report.task} knows {known}")


async def never(report: Report, known: int) -> Reply:
    raise AssertionError(report)
