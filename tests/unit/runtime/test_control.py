"""The control port with real connections on loopback."""

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.job.tf_config import tasks_of
from trainer.runtime import control
from trainer.runtime.chief import Chief
from trainer.runtime.rendezvous import Reply, Report
from trainer.runtime.supervisor import Supervisor

HOST = "127.0.0.1"
IDENTITY = {"job": "j", "task": "worker:1", "incarnation": "abc"}
STATUS: dict[str, Any] = {
    "step": 30,
    "loss": 0.5,
    "generation": 2,
    "phase": "running",
    "text": "x",
    "last_checkpoint": None,
}
REPORT = Report("worker:1", "abc", "digest", "spec", {"tensorflow": "2.21.0"}, failure=(2, "x"), status={"step": 5})
REPLY = Reply("running", 3, 500, version=7, step=520)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens who never answers."""
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def free() -> int:
    """A port on which nobody listens."""
    with socket.create_server((HOST, 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def serving(answer: control.Answer | None = None, status: Any = None) -> AsyncIterator[tuple[ClientSession, int]]:
    """A client, and the control port of a task."""
    runner = await control.serve(0, HOST, IDENTITY, lambda: status or STATUS, answer)
    try:
        async with control.client() as session:
            yield session, runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def get(session: ClientSession, port: int, path: str) -> tuple[int, str]:
    async with session.get(f"http://{HOST}:{port}{path}") as response:
        return response.status, await response.text()


async def answer_at_once(report: Report, known: int) -> Reply:
    return replace(REPLY, message=f"{report.task} knows {known}")


# What anybody may read. ---------------------------------------------------------------------------


def test_healthz_tells_who_is_there_and_status_what_it_does() -> None:
    async def run() -> None:
        async with serving() as (session, port):
            assert await control.who_is_there(session, (HOST, port)) == IDENTITY
            code, text = await get(session, port, "/status")
            assert (code, json.loads(text)) == (200, STATUS)
            assert (await get(session, port, "/report"))[0] == 404

    asyncio.run(run())


def test_metrics_are_gauges_with_job_and_task_of_the_numbers_in_status() -> None:
    async def run() -> str:
        async with serving() as (session, port):
            return (await get(session, port, "/metrics"))[1]

    families = list(text_string_to_metric_families(asyncio.run(run())))
    found = {
        sample.name: (family.type, sample.labels, sample.value) for family in families for sample in family.samples
    }
    labels = {"job": "j", "task": "worker:1"}
    assert found == {
        "trainer_step": ("gauge", labels, 30),
        "trainer_loss": ("gauge", labels, 0.5),
        "trainer_generation": ("gauge", labels, 2),
    }
    assert all(family.documentation for family in families)


def test_a_port_that_is_taken_is_named_with_the_way_out(taken: int) -> None:
    with pytest.raises(UserError) as caught:
        asyncio.run(control.serve(taken, HOST, IDENTITY, dict, None))
    assert caught.value.code is Exit.USER
    assert str(caught.value).startswith(f"port {taken} (control port of worker:1) cannot be used: ")
    assert str(caught.value).endswith("or change this task's port in TF_CONFIG (control port = TensorFlow port + 1000)")


# Reports. -----------------------------------------------------------------------------------------


def test_a_report_arrives_whole_and_so_does_the_reply() -> None:
    came: list[Report] = []

    async def answer(report: Report, known: int) -> Reply:
        came.append(report)
        return await answer_at_once(report, known)

    async def run() -> Reply:
        async with serving(answer) as (session, port):
            return await control.send_report(session, (HOST, port), REPORT, 6)

    assert asyncio.run(run()) == replace(REPLY, message="worker:1 knows 6")
    assert [asdict(report) for report in came] == [{**asdict(REPORT), "failure": [2, "x"]}]


@pytest.fixture
def chief(tmp_path: Path) -> Iterator[Chief]:
    """A chief of three workers, none of which came yet."""
    tasks = {"worker": 3}
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": tasks, "model_dir": str(tmp_path)})
    task = tasks_of(spec)[0]
    chief = Chief(Supervisor(spec, task, Path(os.devnull)))
    yield chief
    chief._lock.close()


def report_of(chief: Chief, name: str, **changes: Any) -> Report:
    return replace(REPORT, task=name, cluster=chief._task.digest, **{"failure": None, **changes})


def test_a_held_report_is_answered_at_the_news(chief: Chief, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without news it would be held for the 60 s that the client waits."""
    monkeypatch.setattr(control, "POLL_SECONDS", 60.0)
    came = asyncio.Queue[Report]()

    async def answer(report: Report, known: int) -> Reply:
        came.put_nowait(report)
        return await chief.answer(report, known)

    async def run() -> None:
        async with serving(answer) as (session, port):

            async def ask(name: str, known: int, **changes: Any) -> Reply:
                return await control.send_report(session, (HOST, port), report_of(chief, name, **changes), known)

            first = await ask("worker:1", 0)
            assert first.phase == "forming"
            held = asyncio.create_task(ask("worker:1", first.version))
            for _ in range(2):
                await came.get()
            assert not held.done()
            assert (await ask("worker:2", first.version, failure=(13, "the loss is nan"))).phase == "failed"
            assert (await held).message == "worker:2: the loss is nan"

    asyncio.run(asyncio.wait_for(run(), 30))


def test_without_news_a_report_is_answered_in_the_end(chief: Chief, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "POLL_SECONDS", 0.1)

    async def run() -> None:
        begun = time.monotonic()
        reply = await chief.answer(report_of(chief, "worker:1"), 1)
        assert (reply.phase, reply.version) == ("forming", 1)
        assert time.monotonic() - begun >= 0.09

    asyncio.run(run())


GOOD = {**asdict(REPORT), "known": 0}
BAD_REPORTS: list[Any] = [
    b"", b"{", b"\xff", b"[]", b"3", b'"x"', b"null", b"{}",
    {**GOOD, "colour": "blue"},
    {**GOOD, "known": "x"},
    {**GOOD, "known": None},
    asdict(REPORT),
    {key: value for key, value in GOOD.items() if key != "task"},
]  # fmt: skip


@pytest.mark.parametrize("body", BAD_REPORTS, ids=range(len(BAD_REPORTS)))
def test_what_is_no_report_is_refused_and_never_reaches_the_chief(body: Any) -> None:
    async def answer(report: Report, known: int) -> Reply:
        raise AssertionError(report)

    async def run() -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with serving(answer) as (session, port), session.post(f"http://{HOST}:{port}/report", data=data) as back:
            return back.status, await back.text()

    assert asyncio.run(run()) == (400, "not a report")


# Why somebody cannot be reached. ------------------------------------------------------------------


async def ask(address: tuple[str, int]) -> None:
    async with control.client() as session:
        await control.who_is_there(session, address)


async def report_to(address: tuple[str, int]) -> None:
    async with control.client() as session:
        await control.send_report(session, address, REPORT, 0)


Dial = Callable[[tuple[str, int]], Awaitable[None]]
dials = pytest.mark.parametrize("dial", [ask, report_to])


def problem(dial: Dial, address: tuple[str, int]) -> str:
    async def run() -> None:
        await dial(address)

    with pytest.raises(ConnectionError) as caught:
        asyncio.run(run())
    return str(caught.value)


@dials
def test_nobody_listens(dial: Dial, free: int) -> None:
    assert problem(dial, (HOST, free)) == f"{HOST}:{free} refused"


@dials
def test_a_name_that_does_not_exist(dial: Dial) -> None:
    assert problem(dial, ("j-worker-1.j.invalid", 3222)) == "j-worker-1.j.invalid does not resolve (DNS)"


@dials
def test_nobody_answers(dial: Dial, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "DIAL_SECONDS", 0.1)
    monkeypatch.setattr(control, "POLL_SECONDS", 0.1)
    assert problem(dial, (HOST, taken)) == f"no answer from {HOST}:{taken}"


ANSWERS = {
    "not found": b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
    "HTML": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "JSON that is no object": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n\"ok\"",
    "broken JSON": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n{\"ok",
    "a closed connection": b"",
}  # fmt: skip


@dials
@pytest.mark.parametrize("answer", list(ANSWERS))
def test_another_program_answers(dial: Dial, answer: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWERS[answer])
        await writer.drain()
        writer.close()

    async def run() -> tuple[str, int]:
        async with await asyncio.start_server(talk, HOST, 0) as server:
            port: int = server.sockets[0].getsockname()[1]
            with pytest.raises(ConnectionError) as caught:
                await dial((HOST, port))
            return str(caught.value), port

    text, port = asyncio.run(run())
    if answer == "a closed connection":
        assert text == f"{HOST}:{port}: Server disconnected"
    elif (answer, dial) == ("not found", report_to):
        assert text == f"{HOST}:{port} answers 404: another program?"
    else:
        assert text == f"{HOST}:{port} answers, but is no supervisor: another program?"


def test_a_proxy_of_the_environment_is_not_asked(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://{HOST}:{free}")

    async def run() -> None:
        async with serving() as (session, port):
            assert await control.who_is_there(session, (HOST, port)) == IDENTITY

    asyncio.run(run())


def test_an_address_of_ipv6_is_dialled() -> None:
    async def run() -> None:
        runner = await control.serve(0, "::1", IDENTITY, dict, None)
        async with control.client() as session:
            assert await control.who_is_there(session, ("::1", runner.addresses[0][1])) == IDENTITY
        await runner.cleanup()

    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        asyncio.run(run())
