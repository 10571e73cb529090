"""A port that leads elsewhere: streams as targets make them, with real sockets and processes."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import TypeVar

import pytest

from trainer.job.errors import UserError
from trainer.targets import tunnel
from trainer.targets.tunnel import Dial, Listener, ProcessStream, Stream, answers

T = TypeVar("T")

# As `trainer probe relay`, of a server that answers each line with the same in capitals, and ends after "end".
ECHO = """
import sys
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line.upper())
    sys.stdout.buffer.flush()
    if line == b"end\\n": break
"""


def soon(work: Coroutine[None, None, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 30))


async def echo() -> Stream:
    return await ProcessStream.start(sys.executable, "-c", ECHO)


@contextlib.asynccontextmanager
async def listening(dial: Dial, failures: list[str] | None = None) -> AsyncIterator[int]:
    failures = [] if failures is None else failures
    listener = Listener(dial, failures.append)
    port = await listener.open(0)
    try:
        yield port
    finally:
        await listener.close()


def test_what_comes_goes_there_and_the_answer_comes_back_for_each_connection() -> None:
    async def run() -> None:
        async with listening(echo) as port:
            pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for number, (_, writer) in enumerate(pairs):
                writer.write(f"line {number}\n".encode())
            for number, (reader, writer) in enumerate(pairs):
                assert await reader.readline() == f"LINE {number}\n".encode()
                writer.write(b"end\n")
                assert await reader.read() == b"END\n"
                writer.close()

    soon(run())


def test_much_data_passes_unchanged() -> None:
    async def run() -> bytes:
        async with listening(echo) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"a" * 3_000_000 + b"\nend\n")
            found = await reader.read()
            writer.close()
            return found

    assert soon(run()) == b"A" * 3_000_000 + b"\nEND\n"


def test_the_process_ends_when_the_browser_leaves() -> None:
    made: list[ProcessStream] = []

    async def dial() -> Stream:
        made.append(await ProcessStream.start(sys.executable, "-c", ECHO))
        return made[0]

    async def run() -> int | None:
        async with listening(dial) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"x\n")
            await reader.readline()
            writer.close()
            return await made[0]._process.wait()

    assert soon(run()) == -9


def test_a_stream_that_cannot_be_made_is_an_answer_that_a_browser_shows() -> None:
    failures: list[str] = []

    async def dial() -> Stream:
        raise ConnectionError("the chief does not run")

    async def run() -> bytes:
        async with listening(dial, failures) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            found = await reader.read()
            writer.close()
            return found

    found = soon(run())
    assert found.startswith(b"HTTP/1.1 502 ")
    assert found.endswith(b"\r\n\r\nthe chief does not run\n")
    assert failures == ["the chief does not run"]


@pytest.mark.parametrize("code", ["", "import sys; sys.stdin.readline()"])
def test_another_side_that_ends_without_a_word_is_a_failure_too(code: str) -> None:
    """As a relay of a container that has ended."""
    failures: list[str] = []

    async def run() -> bytes:
        async with listening(lambda: ProcessStream.start(sys.executable, "-c", code), failures) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            found = await reader.read()
            writer.close()
            return found

    assert soon(run()).endswith(b"\r\n\r\nno answer\n")
    assert failures == ["no answer"]


def test_no_stream_is_made_for_who_says_nothing() -> None:
    async def never() -> Stream:
        raise AssertionError("a stream")

    async def run() -> int:
        async with listening(never) as port:
            pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(tunnel.MOST_CONNECTIONS + 1)]
            with contextlib.suppress(ConnectionError):
                assert await pairs[0][0].read() == b""  # the oldest makes room
            for _, writer in pairs:
                writer.close()
            return len(pairs)

    assert soon(run()) == 65


def test_a_browser_that_leaves_before_the_answer_is_no_failure() -> None:
    failures: list[str] = []

    async def run() -> None:
        async with listening(echo, failures) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await writer.wait_closed()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)  # accepted after the first
            writer.write(b"end\n")
            await reader.read()
            writer.close()

    soon(run())
    assert failures == []


def test_a_stream_that_does_not_close_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "CLOSE_SECONDS", 0.1)

    class Stuck:
        def __init__(self) -> None:
            self.released = asyncio.Event()

        async def read(self) -> bytes:
            await asyncio.sleep(0)
            return b"x"

        async def write(self, data: bytes) -> None: ...

        async def close(self) -> None:
            await self.released.wait()

    async def run() -> None:
        stream = Stuck()

        async def stuck() -> Stream:
            return stream

        async with listening(stuck) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"x")
            await reader.readexactly(1)
        stream.released.set()
        await reader.read()
        writer.close()

    soon(run())


def test_a_dial_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "DIAL_SECONDS", 0.1)
    monkeypatch.setattr(tunnel, "REQUEST_SECONDS", 0.1)
    failures: list[str] = []

    async def dial() -> Stream:
        await asyncio.sleep(60)
        raise AssertionError

    async def run() -> bytes:
        async with listening(dial, failures) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n")
            found = await reader.read()
            writer.close()
            return found

    assert soon(run()).endswith(b"no connection in time\n")
    assert failures == ["no connection in time"]


def test_a_program_that_is_missing_is_a_connection_that_failed() -> None:
    with pytest.raises(ConnectionError, match=r"no-such-program: No such file"):
        soon(ProcessStream.start("no-such-program"))


@pytest.mark.parametrize(("port", "why"), [(70000, "must be 1 to 65535"), (None, "Address already in use")])
def test_a_port_that_cannot_be_used_is_named(port: int | None, why: str, taken: int) -> None:
    async def run() -> None:
        await Listener(echo, print).open(port or taken)

    with pytest.raises(UserError) as caught:
        soon(run())
    assert str(caught.value) == f"--port {port or taken}: cannot be used: {why}; leave it out, or give another one"


@pytest.mark.parametrize(("line", "status"), [("HTTP/1.1 200 OK", 200), ("HTTP/1.1 404 Not Found", 404)])
def test_the_page_is_asked_whether_it_is_there(line: str, status: int) -> None:
    code = f"import sys; sys.stdin.readline(); print({line!r}, end='\\r\\n\\r\\n')"
    assert soon(answers(lambda: ProcessStream.start(sys.executable, "-c", code))) == status


def test_a_page_that_does_not_answer_in_time_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "DIAL_SECONDS", 0.2)

    class Silent:
        async def read(self) -> bytes:
            await asyncio.sleep(60)
            return b""

        async def write(self, data: bytes) -> None: ...

        async def close(self) -> None: ...

    async def silent() -> Stream:
        return Silent()

    with pytest.raises(ConnectionError, match=r"^no answer within 0\.2 s$"):
        soon(answers(silent))


@pytest.mark.parametrize("code", ["", "print('hello', end='\\r\\n')"])
def test_what_is_no_answer_of_a_page_is_none(code: str) -> None:
    with pytest.raises(ConnectionError, match="no answer"):
        soon(answers(lambda: ProcessStream.start(sys.executable, "-c", code)))
