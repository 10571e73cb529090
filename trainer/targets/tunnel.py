"""A port of this machine that leads to the page of a job elsewhere: each connection gets a stream of the target's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from trainer.connections import Connections, Guarded
from trainer.job.errors import UserError

BYTES = 1 << 16
MOST_CONNECTIONS = 64
DIAL_SECONDS, REQUEST_SECONDS = 20.0, 2.0
CLOSE_SECONDS = 2.0
"""How long all streams may take to end: the other side may not answer."""
_FAILED = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"


class Stream(Protocol):
    """A connection to the chief's control port, over there. Methods raise ConnectionError."""

    async def read(self) -> bytes:
        """What comes next; empty at the end."""

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None: ...


Dial: TypeAlias = "Callable[[], Awaitable[Stream]]"
"""Makes a stream; raises ConnectionError with the reason in a few words."""
Tunnel: TypeAlias = "Callable[[], AbstractAsyncContextManager[Dial]]"
"""Opens the connection to the target, within an event loop."""


class Listener:
    """Listens on loopback, and passes on what comes. `failed` is called with the reason why a stream could not be
    made."""

    def __init__(self, dial: Dial, failed: Callable[[str], None]) -> None:
        self._dial, self._failed = dial, failed
        self._connections = Connections(MOST_CONNECTIONS, "page", _warn, own_user=True)
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server

    async def open(self, port: int) -> int:
        """Returns the port that it listens on.

        Args:
            port: 0 for a free one.

        Raises:
            UserError: it cannot be used.
        """
        loop = asyncio.get_running_loop()

        def protocol() -> Guarded:
            inner = asyncio.StreamReaderProtocol(asyncio.StreamReader(BYTES, loop), self._accept, loop)
            return Guarded(inner, self._connections)

        try:
            self._server = await loop.create_server(protocol, "127.0.0.1", port)
        except (OSError, OverflowError) as error:
            raise cannot_listen(port, error) from None
        self._sweeping = loop.create_task(self._connections.keep_closing_late())
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Ends all connections."""
        self._server.close()
        self._sweeping.cancel()
        for each in self._serving:
            each.cancel()
        if self._serving:
            await asyncio.wait(self._serving, timeout=CLOSE_SECONDS)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            self._serving.discard(task)
            writer.close()

        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(ended)  # it may be cancelled before it begins
        if not self._server.is_serving():
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream, first = None, b""
        try:
            if not (first := await reader.read(BYTES)):  # a stream is a process, or a connection: not for the silent
                return
            assert isinstance(writer.transport, asyncio.Transport)
            self._connections.serves(writer.transport)
            stream = await asyncio.wait_for(self._dial(), DIAL_SECONDS)
            await _pass_on(first, reader, writer, stream)
        except (ConnectionError, asyncio.TimeoutError) as error:
            why = str(error) or "no connection in time"
            self._failed(why)
            if stream is None:
                await _read_request(first, reader)
            await _refuse(writer, f"{why}\n".encode())


def _warn(text: str) -> None:
    print(f"trainer: {text}", file=sys.stderr, flush=True)


def cannot_listen(port: int, error: OSError | OverflowError) -> UserError:
    """The error of a port that a user has named."""
    number = getattr(error, "errno", None)
    why = os.strerror(number) if number else "must be 1 to 65535"
    return UserError(f"--port {port}: cannot be used: {why}; leave it out, or give another one")


async def _read_request(first: bytes, reader: asyncio.StreamReader) -> None:
    """Before it is answered: otherwise the kernel may throw the answer away."""
    if b"\r\n\r\n" in first:
        return
    with contextlib.suppress(
        ConnectionError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
    ):
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_SECONDS)


async def _refuse(writer: asyncio.StreamWriter, text: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        writer.write(_FAILED % (len(text), text))
        await writer.drain()


async def _pass_on(first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: Stream) -> None:
    """Copies what has come first, and all else, until either side ends.

    Raises:
        ConnectionError: the other side has closed without an answer: nothing listens there.
    """

    async def there() -> None:
        data = first
        with contextlib.suppress(ConnectionError):
            while data:
                with contextlib.suppress(ConnectionError):  # the other side has ended: `back` reads its answer
                    await stream.write(data)
                data = await reader.read(BYTES)

    async def back() -> str:
        """Why nothing came."""
        came, why = False, "no answer"
        try:
            while data := await stream.read():
                came = True
                writer.write(data)
                await writer.drain()
        except ConnectionError as error:
            why = str(error) or why
        return "" if came else why

    sending, receiving = asyncio.create_task(there()), asyncio.create_task(back())
    try:
        await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
        if receiving.done() and (why := receiving.result()):
            raise ConnectionError(why)
    finally:
        for each in (sending, receiving):
            each.cancel()
        await asyncio.gather(sending, receiving, return_exceptions=True)
        await stream.close()


async def answers(dial: Dial) -> int:
    """The HTTP status with which the page answers.

    Raises:
        ConnectionError: it does not.
    """
    try:
        return await asyncio.wait_for(_asked(dial), DIAL_SECONDS)
    except asyncio.TimeoutError:
        raise ConnectionError(f"no answer within {DIAL_SECONDS:g} s") from None


async def _asked(dial: Dial) -> int:
    stream = await dial()
    try:
        with contextlib.suppress(ConnectionError):  # it may have answered before it ended
            await stream.write(b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head = b""
        while b"\r\n" not in head and (data := await stream.read()):
            head += data
    finally:
        await stream.close()
    words = head.split(b"\r\n")[0].split()
    if len(words) < 2 or not words[1].isdigit():
        raise ConnectionError("no answer")
    return int(words[1])


class ProcessStream:
    """Stdin and stdout of a process that is connected over there."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, *command: str) -> ProcessStream:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is ours
            )
        except OSError as error:
            raise ConnectionError(f"{command[0]}: {error.strerror}") from None
        return cls(process)

    async def read(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.read(BYTES)

    async def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    async def close(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # `docker compose` is a process of docker's
        with contextlib.suppress(asyncio.TimeoutError):  # to the end of its pipes
            await asyncio.wait_for(self._process.communicate(), CLOSE_SECONDS)
