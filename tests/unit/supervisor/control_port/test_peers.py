"""The client of other supervisors, with real connections on loopback."""

import asyncio
import contextlib
import gzip
import json
import math
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace

import pytest

from tests.unit.supervisor.ports import HOST, IDENTITY, REPLY, REPORT, answer_at_once, never, serving
from trainer.job.errors import Exit, TrainerError
from trainer.protocol.child import ChildStatus
from trainer.protocol.facts import Cause, Loss
from trainer.protocol.reports import Reply, Report
from trainer.supervisor.control_port import peers, server

# Reports. -----------------------------------------------------------------------------------------


def test_a_report_arrives_whole_and_so_does_the_reply() -> None:
    came: list[Report] = []

    async def answer(report: Report, known: int) -> Reply:
        came.append(report)
        return await answer_at_once(report, known)

    async def run() -> Reply:
        async with serving(answer) as (session, port):
            return await peers.send_report(session, (HOST, port), REPORT, 6)

    assert asyncio.run(run()) == replace(REPLY, message="worker:1 knows 6")
    assert came == [REPORT]


def test_what_users_put_into_a_report_is_cut_to_what_may_be_sent() -> None:
    figures: dict[str, object] = {
        "text": "a\tb", "loss": math.nan, "x" * 300: 1, "nested": {"a": 1}, "": 1, "good": 5, "big": 10**40
    }  # fmt: skip
    status = ChildStatus(step=5, line="a\tb", figures=figures)
    came: list[Report] = []

    async def answer(report: Report, known: int) -> Reply:
        came.append(report)
        return REPLY

    async def run() -> None:
        async with serving(answer) as (session, port):
            loss = Loss(Cause.PROGRAM_ENDED, "\x1b[2J", "one\ntwo\0" + "x" * 2**20, code=2)
            long = replace(REPORT, status=status, loss=loss, restarted_for=replace(loss, code=99))
            await peers.send_report(session, (HOST, port), long, 0)

    asyncio.run(run())
    (report,) = came
    assert report.status == ChildStatus(step=5, line="a b", figures={"good": 5})
    assert report.loss is not None
    assert (report.loss.cause, report.loss.text, report.loss.code) == (Cause.PROGRAM_ENDED, " [2J", 2)
    assert report.loss.error.startswith("one\ntwo xxx")
    assert len(report.loss.error) == 8000
    assert report.restarted_for == replace(report.loss, code=int(Exit.BUG)), "a code that is none is that of a defect"


@pytest.mark.parametrize(
    ("tasks", "task_lost", "seconds"),
    [(2, 10.0, 1.0), (600, 10.0, 1.0), (1500, 10.0, 2.5), (3000, 10.0, 5.0), (8192, 10.0, 5.0), (8192, 6.0, 2.0)],
)
def test_many_tasks_report_less_often(tasks: int, task_lost: float, seconds: float) -> None:
    assert peers.hold_seconds(tasks, task_lost) == seconds


@pytest.mark.parametrize("tasks", [1, 700, 3000, 8192])
@pytest.mark.parametrize("task_lost", [5.0, 7.5, 10.0, 60.0])
def test_a_lost_report_does_not_make_its_task_a_lost_one(tasks: int, task_lost: float) -> None:
    """Its client gives up, and sends the next one before the deadline, which counts from the one before."""
    assert peers.hold_seconds(tasks, task_lost) + peers.DIAL_SECONDS < task_lost


def test_a_client_waits_for_as_long_as_the_chief_holds_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "DIAL_SECONDS", 0.2)
    monkeypatch.setattr(peers, "HOLD_SECONDS", 0.1)
    came = asyncio.Event()

    async def answer_late(_report: Report, _known: int) -> Reply:
        came.set()
        await asyncio.sleep(0.6)  # longer than both, shorter than what the client is told
        return REPLY

    async def run() -> Reply:
        async with serving(answer_late) as (session, port):
            with pytest.raises(ConnectionError, match="no answer"):
                await peers.send_report(session, (HOST, port), REPORT, 6)
            assert came.is_set()
            return await peers.send_report(session, (HOST, port), REPORT, 6, hold=60.0)

    assert asyncio.run(run()) == REPLY


# The secret. --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "chiefs"),
    [(b"", b"right"), (b"wrong", b"right"), (b"right", b"")],
    ids=["none", "another", "only theirs"],
)
def test_a_report_with_another_secret_than_the_chiefs_is_refused_and_its_sender_ends(
    theirs: bytes, chiefs: bytes
) -> None:
    refused = list[tuple[str, ...]]()

    async def run() -> None:
        async with serving(never, refuse=lambda *why: refused.append(why), secret=chiefs) as (session, port):
            await peers.send_report(session, (HOST, port), REPORT, 0, theirs)

    with pytest.raises(TrainerError) as caught:
        asyncio.run(run())
    assert caught.value.code is Exit.MISMATCH
    assert str(caught.value) == (
        "worker:1 has a different secret than its chief; give TRAINER_SECRET or TRAINER_SECRET_FILE to all tasks of "
        "a job, the same to each, or to none"
    )
    assert refused == [(HOST, "worker:1", "lacks this job's secret")]


def test_with_the_same_secret_report_and_reply_are_believed_and_it_is_never_sent() -> None:
    secret, sent, port = b"0123456789abcdef", b"", 0

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards the bytes in both directions and records them."""
        nonlocal sent
        there, back = await asyncio.open_connection(HOST, port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            nonlocal sent
            while data := await source.read(1 << 16):
                sent += data
                target.write(data)
            target.close()

        await asyncio.gather(copy(reader, back), copy(there, writer))

    async def run() -> Reply:
        nonlocal port
        served, listening = serving(answer_at_once, secret=secret), asyncio.start_server(listen, HOST, 0)
        async with served as (session, there), await listening as middle:
            port = there
            between: int = middle.sockets[0].getsockname()[1]
            return await peers.send_report(session, (HOST, between), REPORT, 6, secret)

    assert asyncio.run(run()) == replace(REPLY, message="worker:1 knows 6")
    assert b"worker:1" in sent
    assert secret not in sent


def test_a_reply_without_the_secret_is_not_believed() -> None:
    """Another program at the chief's address, which replies that the job is done."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        signature = re.search(rb"Trainer-Signature: (\w+)", head)
        assert signature is not None
        reply = json.dumps(asdict(Reply("done", 1, 0, 2))).encode()
        lines = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(reply), signature[0], b"Connection: close", b"", reply]
        writer.write(b"\r\n".join(lines))
        writer.close()

    async def run() -> str:
        async with await asyncio.start_server(talk, HOST, 0) as server, peers.client() as session:
            address = (HOST, server.sockets[0].getsockname()[1])
            with pytest.raises(ConnectionError) as caught:
                await peers.send_report(session, address, REPORT, 0, b"secret")
            return str(caught.value)

    assert asyncio.run(run()).endswith(" answers without this job's secret: another program?")


# Why a peer cannot be reached. --------------------------------------------------------------------


async def ask(address: tuple[str, int]) -> None:
    async with peers.client() as session:
        await peers.who_is_there(session, address)


async def report_to(address: tuple[str, int]) -> None:
    async with peers.client() as session:
        await peers.send_report(session, address, REPORT, 0)


Dial = Callable[[tuple[str, int]], Awaitable[None]]
dials = pytest.mark.parametrize("dial", [ask, report_to])


def problem(dial: Dial, address: tuple[str, int]) -> str:
    async def run() -> None:
        await dial(address)

    with pytest.raises(ConnectionError) as caught:
        asyncio.run(run())
    return str(caught.value)


@dials
def test_an_address_without_a_listener_is_reported(dial: Dial, free: int) -> None:
    assert problem(dial, (HOST, free)) == f"{HOST}:{free} refused"


@dials
def test_a_name_that_does_not_exist(dial: Dial) -> None:
    assert problem(dial, ("j-worker-1.j.invalid", 3222)) == "j-worker-1.j.invalid does not resolve (DNS)"


@dials
def test_an_address_that_does_not_answer_is_reported(dial: Dial, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "DIAL_SECONDS", 0.1)
    monkeypatch.setattr(peers, "HOLD_SECONDS", 0.1)
    assert problem(dial, (HOST, taken)) == f"no answer from {HOST}:{taken}"


_PACKED = gzip.compress(json.dumps(asdict(IDENTITY)).encode())
PACKED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(_PACKED), _PACKED)
"""Whoever unpacks it has less than that in memory: a megabyte may be a gigabyte."""
ANSWERS = {
    "not found": b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
    "HTML": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "JSON that is no object": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n\"ok\"",
    "broken JSON": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n{\"ok",
    "a packed answer": PACKED,
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
        assert text == f"{HOST}:{port} answers, but is not a supervisor: another program?"


def test_a_proxy_of_the_environment_is_not_asked(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://{HOST}:{free}")

    async def run() -> None:
        async with serving() as (session, port):
            assert await peers.who_is_there(session, (HOST, port)) == IDENTITY

    asyncio.run(run())


def test_an_address_of_ipv6_is_dialled() -> None:
    async def run() -> None:
        opened = await server.serve(0, "::1", IDENTITY, dict)
        async with peers.client() as session:
            assert await peers.who_is_there(session, ("::1", opened.number)) == IDENTITY
        await opened.close()

    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        asyncio.run(run())
