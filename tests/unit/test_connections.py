"""The bounds of a port that strangers reach, with real connections on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from trainer import connections, host
from trainer.connections import Connections, Guarded, most_connections, quiet_about_descriptors


class Echo(asyncio.Protocol):
    """Answers each line with itself, after it has told the bounds that the line was whole."""

    def __init__(self, bounds: Connections) -> None:
        self._bounds = bounds

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data == b"mine\n":
            self._bounds.trust(self._transport)
        if data.endswith(b"\n"):
            self._bounds.serves(self._transport)
            self._transport.write(data)
            self._bounds.waits(self._transport)


@contextlib.asynccontextmanager
async def echoing(bounds: Connections, address: str = "127.0.0.1") -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(lambda: Guarded(Echo(bounds), bounds), address, 0)
    sweeping = asyncio.create_task(bounds.keep_closing_late())
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        sweeping.cancel()
        server.close()
        for writer in _writers:
            writer.transport.abort()
        _writers.clear()
        while len(bounds):
            await asyncio.sleep(0)


Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_writers = list[asyncio.StreamWriter]()


async def connected(port: int, bounds: Connections, says: bytes = b"") -> Pair:
    """A connection once the other side has admitted it, and has answered what it says."""
    before = len(bounds)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    _writers.append(writer)
    if says:
        writer.write(says)
        assert await asyncio.wait_for(reader.readline(), 10) == says
    else:
        while len(bounds) == before:
            await asyncio.sleep(0)
    return reader, writer


async def is_closed(pair: Pair) -> bool:
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(pair[0].read(1), 10) == b""
    return True


@pytest.mark.parametrize("says", [b"", b"half a line", b"a line\n"], ids=["nothing", "half a request", "a request"])
def test_a_peer_that_takes_too_long_to_ask_is_closed(says: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 0.05)

    async def run() -> int:
        bounds = Connections(10, "port", print)
        async with echoing(bounds) as port:
            pair = await connected(port, bounds)
            pair[1].write(says)
            if says.endswith(b"\n"):
                assert await pair[0].readline() == says
            assert await is_closed(pair)
        return len(bounds)

    assert asyncio.run(run()) == 0


def test_a_peer_that_does_not_read_its_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUEST_SECONDS", "ANSWER_SECONDS"):
        monkeypatch.setattr(connections, name, 0.2)
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 0.05)

    async def run() -> None:
        bounds = Connections(10, "port", print)
        async with echoing(bounds) as port:
            _, writer = await connected(port, bounds)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"x" * (16 << 20) + b"\n")
            while len(bounds):
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_who_waits_longest_makes_room_and_one_line_tells_it() -> None:
    lines = list[str]()

    async def run() -> None:
        bounds = Connections(8, "port", lines.append)
        async with echoing(bounds) as port:
            mine = await connected(port, bounds, b"mine\n")
            silent = [await connected(port, bounds) for _ in range(4)]
            for _ in range(40):
                await connected(port, bounds, b"hello\n")
            assert len(bounds) == 5  # half of all for the strangers of one address, and who has proven to belong here
            assert all([await is_closed(each) for each in silent])
            mine[1].write(b"again\n")
            assert await mine[0].readline() == b"again\n"

    asyncio.run(run())
    assert lines == ["port: 5 connections are open; closes those that wait, of 127.0.0.1"]


def test_where_all_belong_to_the_job_a_further_one_is_refused() -> None:
    async def run() -> None:
        bounds = Connections(3, "port", print)
        async with echoing(bounds) as port:
            own = [await connected(port, bounds, b"mine\n") for _ in range(3)]
            refused = await asyncio.open_connection("127.0.0.1", port)
            assert await is_closed(refused)
            refused[1].close()
            own[0][1].close()
            while len(bounds) == 3:
                await asyncio.sleep(0)
            await connected(port, bounds, b"hello\n")

    asyncio.run(run())


def test_there_are_descriptors_for_all_connections() -> None:
    """In a process that may have so many, or so few."""
    program = (
        "import resource; from trainer.connections import most_connections as most\n"
        "for soft, hard, tasks in ((1024, 4096, 2), (1024, 4096, 1000), (1024, 1024, 1000), (256, 256, 2)):\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))\n"
        "    print(most(tasks), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert out.splitlines() == ["132 1024", "2128 2320", "832 1024", "64 256"]
    assert most_connections() <= resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_without_descriptors_one_line_says_so() -> None:
    lines = list[str]()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        quiet_about_descriptors(loop, lines.append)
        for _ in range(1000):
            error = OSError(24, "Too many open files")
            loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": error})

    asyncio.run(run())
    assert lines == ["no new connection can be accepted: [Errno 24] Too many open files"]


OF_ANOTHER_USER = """
import encodings.idna, os, socket, sys  # that user may be unable to read Python's files
os.setuid(65534)
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as made:
    made.sendall(b"hello\\n")
    try:
        print(made.recv(6) == b"")
    except ConnectionError:
        print(True)
"""


@pytest.mark.skipif(not host.LINUX or os.getuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_another_user_of_this_machine_is_closed(address: str) -> None:
    lines = list[str]()

    async def run() -> bytes:
        bounds = Connections(8, "port", lines.append, own_user=True)
        async with echoing(bounds, address) as port:
            command = [sys.executable, "-c", OF_ANOTHER_USER, address, str(port)]
            for _ in range(3):
                process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
                out, _ = await process.communicate()
            return out

    assert asyncio.run(run()) == b"True\n"
    assert lines == ["port: closes connections of another user of this machine"]


@pytest.mark.parametrize("linger", [0, 1], ids=["closed", "reset"])
def test_a_peer_that_ends_before_it_is_accepted_is_not_taken_for_another_user(linger: int) -> None:
    """As a task that has something newer to report before its chief has accepted its connection."""
    lines = list[str]()

    async def run() -> None:
        bounds = Connections(8, "port", lines.append, own_user=True)
        async with echoing(bounds) as port:
            with socket.create_connection(("127.0.0.1", port)) as made:  # the loop does not run meanwhile
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", linger, 0))
            await connected(port, bounds, b"hello\n")

    asyncio.run(run())
    assert lines == []


def test_a_connection_that_sends_much_is_read_in_parts_and_others_have_their_turn_between() -> None:
    bounds, log = Connections(8, "a port", lambda _: None), list[int]()

    class Sizes(Echo):
        def data_received(self, data: bytes) -> None:
            log.append(len(data))
            super().data_received(data)

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: Guarded(Sizes(bounds), bounds), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        writer.write(b"x" * 1_000_000 + b"\n")
        assert (await asyncio.wait_for(reader.readline(), 20)).endswith(b"\n")
        writer.close()
        server.close()

    asyncio.run(run())
    assert sum(log) == 1_000_001
    assert max(log) <= connections.READ_BYTES
