"""The control port with real connections on loopback: what it answers, and what it refuses."""

import asyncio
import contextlib
import io
import json
import math
import zlib
from dataclasses import asdict
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector

from tests.unit.supervisor.ports import HOST, IDENTITY, REPORT, STATUS, answer_at_once, get, never, serving
from trainer.job.errors import Exit, UserError
from trainer.model_dir.stacks import Stacks
from trainer.protocol import reports
from trainer.supervisor.control_port import peers, server

# What any program may read. -----------------------------------------------------------------------


def test_healthz_identifies_the_task_and_status_shows_its_state() -> None:
    async def run() -> None:
        async with serving() as (session, port):
            assert await peers.who_is_there(session, (HOST, port)) == IDENTITY
            code, text = await get(session, port, "/status")
            assert (code, json.loads(text)) == (200, STATUS)
            assert (await get(session, port, "/report"))[0] == 404

    asyncio.run(run())


def test_status_is_valid_json_even_if_the_loss_is_not_finite() -> None:
    async def run() -> tuple[int, str]:
        async with serving(status={"loss": math.nan, "tasks": {"worker:0": {"x": [math.inf, 1]}}}) as (session, port):
            assert (await get(session, port, "/metrics"))[0] == 200
            return await get(session, port, "/status")

    code, text = asyncio.run(run())
    assert (code, json.loads(text)) == (200, {"loss": None, "tasks": {"worker:0": {"x": [None, 1]}}})
    assert "NaN" not in text


NAMED = {
    "this machine": ("127.0.0.1", "localhost:3222", 200),
    "a machine of the job": ("127.0.0.1", "gpu-7.example.org:3222", 200),
    "an address": ("127.0.0.1", "10.0.0.7", 200),
    "a browser that was led here": ("127.0.0.1", "evil.example:3222", 403),
    "another machine": ("127.0.0.6", "proxy.example", 200),
}


@pytest.mark.parametrize(("peer", "host", "code"), NAMED.values(), ids=NAMED)
@pytest.mark.parametrize("path", ["/status", "/metrics", "/healthz"])
def test_what_is_public_is_not_for_a_page_whose_name_was_made_to_mean_this_machine(
    path: str, peer: str, host: str, code: int
) -> None:
    async def run() -> int:
        async with serving(names={"gpu-7.example.org"}) as (_, port):
            return (await ask_from(peer, host, port, path))[0]

    assert asyncio.run(run()) == code


async def ask_from(peer: str, host: str, port: int, path: str) -> tuple[int, str]:
    """Asks from that address of this machine, by that name."""
    async with ClientSession(connector=TCPConnector(local_addr=(peer, 0)), headers={"Host": host}) as session:
        return await get(session, port, path)


def test_a_port_that_is_taken_is_named_with_the_fix(taken: int) -> None:
    with pytest.raises(UserError) as caught:
        asyncio.run(server.serve(taken, HOST, IDENTITY, dict))
    assert caught.value.code is Exit.USER
    assert str(caught.value).startswith(f"port {taken} (control port of worker:1) cannot be used: ")
    assert str(caught.value).endswith("or change this task's port in TF_CONFIG (control port = TensorFlow port + 1000)")


@pytest.mark.parametrize(
    ("peer", "host", "code"),
    [("127.0.0.1", "localhost", 200), ("127.0.0.6", "localhost", 403), ("127.0.0.1", "evil.example", 403)],
    ids=["here", "a mesh's proxy", "a browser that was led here"],
)
def test_stacks_are_for_programs_of_this_machine_or_container(peer: str, host: str, code: int) -> None:
    found = Stacks(5.0, "worker:1 is at mine.py:7 read()")

    async def ask() -> Stacks:
        return found

    async def run() -> tuple[int, str]:
        async with serving(stacks=ask) as (_, port):
            return await ask_from(peer, host, port, "/stacks")

    answer, text = asyncio.run(run())
    assert answer == code
    assert (code == 200) == (text == json.dumps(asdict(found)))


# What is no report. -------------------------------------------------------------------------------


GOOD: dict[str, Any] = asdict(REPORT)
NESTED = b'{"report": {"task": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
NO_REPORTS: dict[str, bytes | dict[str, Any]] = {
    "nothing": b"", "half": b"{", "no text": b"\xff", "a list": b"[]", "a number": b"3", "text": b'"x"',
    "null": b"null", "nested": NESTED, "no fields": {}, "a field too many": {**GOOD, "colour": "blue"},
    "a field missing": {key: value for key, value in GOOD.items() if key != "task"},
    "a task without a name": {**GOOD, "task": ""}, "a task that is no text": {**GOOD, "task": 1},
    "control characters": {**GOOD, "task": "worker:1\nall is well"}, "a long name": {**GOOD, "task": "w" * 300},
    "a success as a failure": {**GOOD, "failure": [0, "x"]}, "an unknown code": {**GOOD, "failure": [99, "x"]},
    "a code that is no whole number": {**GOOD, "failure": [2.0, "x"]},
    "a code that is true": {**GOOD, "failure": [True, "x"]},
    "a failure without text": {**GOOD, "failure": [2]}, "a failure that is text": {**GOOD, "failure": "2x"},
    "less than 0": {**GOOD, "generation": -1}, "too much": {**GOOD, "ended_early": 10**30},
    "a fraction": {**GOOD, "restarts": 0.5},
    "NaN": {**GOOD, "status": {"loss": math.nan}}, "infinity": {**GOOD, "status": {"loss": math.inf}},
    "nested figures": {**GOOD, "status": {"loss": {"a": 1}}}, "a huge figure": {**GOOD, "status": {"step": 10**30}},
    "many figures": {**GOOD, "status": {str(i): i for i in range(1000)}},
    "a version that is a number": {**GOOD, "versions": {"tensorflow": 2}}, "yes for true": {**GOOD, "leaving": "yes"},
}  # fmt: skip


async def post(session: ClientSession, port: int, body: Any, **headers: str) -> tuple[int, str]:
    async with session.post(f"http://{HOST}:{port}/report", data=body, headers=headers) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("what", NO_REPORTS)
def test_what_is_no_report_is_refused_in_one_line_and_never_reaches_the_chief(
    what: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    value, refused = NO_REPORTS[what], list[tuple[str, ...]]()
    body = value if isinstance(value, bytes) else json.dumps({"report": value, "known": 0}).encode()

    async def run() -> tuple[int, str]:
        async with serving(never, refuse=lambda *why: refused.append(why)) as (session, port):
            return await post(session, port, body)

    code, text = asyncio.run(run())
    assert code == 400
    assert text.startswith("not a report: ")
    assert text.isprintable()
    assert len(text) < 300
    assert refused == [(HOST, "", "is not a report")]
    assert (*capfd.readouterr(), *caplog.messages) == ("", "")


@pytest.mark.parametrize("known", [-1, "0", None, 2**40, 0.5])
def test_the_version_that_a_task_knows_is_a_number(known: object) -> None:
    async def run() -> int:
        async with serving(never) as (session, port):
            return (await post(session, port, json.dumps({"report": GOOD, "known": known}).encode()))[0]

    assert asyncio.run(run()) == 400


def test_a_report_that_is_too_long_is_refused() -> None:
    refused = list[tuple[str, ...]]()

    async def run() -> int:
        async with serving(never, refuse=lambda *why: refused.append(why)) as (session, port):
            return (await post(session, port, io.BytesIO(b" " * 2_000_000)))[0]

    assert asyncio.run(run()) == 413
    assert refused == [(HOST, "", "is too long")]


@pytest.mark.parametrize("packing", ["deflate", "gzip"])
def test_a_body_that_is_packed_is_not_unpacked(packing: str) -> None:
    """A megabyte would be a gigabyte before its signature is checked."""
    packed = zlib.compress(reports.question(REPORT, 0), wbits=31 if packing == "gzip" else 15)

    async def run() -> tuple[int, str]:
        async with serving(answer_at_once) as (session, port):
            return await post(session, port, packed, **{"Content-Encoding": packing})

    code, text = asyncio.run(run())
    assert code == 400
    assert text.startswith("not a report: ")


@pytest.mark.parametrize("line", ["POST /report", "GET /status"])
def test_a_body_in_pieces_is_not_read(line: str) -> None:
    head = f"{line} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n".encode()

    async def run() -> bytes:
        async with serving(never) as (_, port):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(head)
            try:
                return await asyncio.wait_for(reader.read(), 20)
            except ConnectionError:
                return b""
            finally:
                writer.close()

    assert asyncio.run(run()) == b""


MANY_MISTAKES = b'{"report":{"status":{' + b",".join(b'"%x":[0]' % i for i in range(85_000)) + b'}},"known":0}'


def test_nothing_of_a_report_is_read_before_its_signature_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_: bytes) -> None:
        raise AssertionError("read")

    monkeypatch.setattr(reports, "read_question", read)
    refused = list[tuple[str, ...]]()

    async def run() -> list[tuple[int, str]]:
        refuse = lambda *why: refused.append(why)  # noqa: E731
        async with serving(never, refuse=refuse, secret=b"secret") as (session, port):
            bodies = (MANY_MISTAKES, b"", b"\xff", reports.question(REPORT, 0))
            return [await post(session, port, body, **{"Trainer-Task": "worker:1"}) for body in bodies]

    assert asyncio.run(run()) == [(403, "lacks this job's secret")] * 4
    assert refused == [(HOST, "worker:1", "lacks this job's secret")] * 4


def test_a_report_of_too_many_parts_is_not_checked_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job without a secret, to which any program may report."""
    monkeypatch.setattr(reports, "_ASKED", None)
    with pytest.raises(ValueError, match="has more than 16000 parts"):
        reports.read_question(MANY_MISTAKES)


def test_bodies_that_strangers_have_begun_to_send_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of them are ended; a peer that has sent a report before is no stranger."""
    monkeypatch.setattr(server, "STRANGERS_BYTES", 100_000)
    head = b"POST /report HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" + b" " * 40_000

    async def run() -> None:
        async with serving(answer_at_once) as (session, port):
            begun = [await asyncio.open_connection(HOST, port) for _ in range(3)]
            for _, writer in begun:
                writer.write(head)
                await writer.drain()
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(begun[0][0].read(), 20) == b""
            await peers.send_report(session, (HOST, port), REPORT, 0)
            for _, writer in begun:
                writer.close()

    asyncio.run(run())


# What is no request. ------------------------------------------------------------------------------


TO_REPORT = b"POST /report HTTP/1.1\r\nHost: x\r\n"
STRANGE_REQUESTS = {
    "TLS": bytes.fromhex("16030100a5010000a1030374"),
    "binary": bytes(range(256)),
    "a path": b"GET /../../x HTTP/1.1\r\n\r\n",
    "a method": b"PROPFIND / HTTP/1.1\r\nHost: x\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "a long line": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000 + b"\r\n",
    "a host": b"GET /status HTTP/1.1\r\nHost: [::::\r\n\r\n",
    "a length that is none": TO_REPORT + b"Content-Length: -1\r\n\r\n",
    "two lengths": TO_REPORT + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "broken chunks": TO_REPORT + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "broken deflate": TO_REPORT + b"Content-Encoding: deflate\r\nContent-Length: 3\r\n\r\nabc",
    "broken gzip": TO_REPORT + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    "half a body": TO_REPORT + b"Content-Length: 100\r\n\r\n{}",
    "a charset": TO_REPORT + b"Content-Type: text/json; charset=klingon\r\nContent-Length: 2\r\n\r\n{}",
    "a signature": TO_REPORT + b"Trainer-Signature: \xff\xfe\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("request_", STRANGE_REQUESTS)
def test_what_is_no_request_leaves_no_traceback_and_the_port_serves_on(
    request_: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> bytes:
        async with serving(never) as (session, port):
            reader, writer = await asyncio.open_connection(HOST, port)
            answer = b""  # who is still sending may find the connection closed
            with contextlib.suppress(ConnectionError):
                writer.write(STRANGE_REQUESTS[request_])
                writer.write_eof()
                answer = await asyncio.wait_for(reader.read(), 20)
            writer.close()
            assert (await get(session, port, "/healthz"))[0] == 200
            return answer

    answer = asyncio.run(run())
    assert b"500 " not in answer
    assert b"Traceback" not in answer
    assert (*capfd.readouterr(), *caplog.messages) == ("", "")
