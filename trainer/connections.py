"""Bounds for the connections of a port that strangers reach: how many there are, and how long one may take to ask.

A connection waits while it is its peer's turn: until a whole request has come, and until the answer has been read. Of
those that wait too long, or longest when there are too many, this side closes. So silent or slow peers cost neither
descriptors nor memory, and cannot keep others out. It knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections import Counter
from collections.abc import Callable

from trainer import sockets

REQUEST_SECONDS = 10.0
"""How long a peer may take for a whole request."""
ANSWER_SECONDS = 60.0
"""How long it may take to read the answer."""
TRUSTED_SECONDS = 75.0
"""How long a peer may be silent that has proven to belong to the job: it may be suspended for a while."""
SWEEP_SECONDS = 1.0
LOG_SECONDS = 60.0
"""Time between two log lines about the same thing."""
BACKLOG = 128
"""Connections that the kernel keeps until they are accepted; asyncio accepts as many at once."""
STRANGERS = 128
"""Connections that are always allowed, beside those of the job's tasks."""
FEWEST = 32
READ_BYTES = 16 << 10
"""The most that is read of a connection before others have their turn. asyncio reads 256 KiB, of which a parser of HTTP
can make some megabytes, or a tenth of a second's work, and that of each connection."""
_OTHER_DESCRIPTORS = 64
"""Descriptors that a process needs for all else."""


def most_connections(tasks: int = 0) -> int:
    """How many connections a port of a job with so many tasks allows: less than this process has descriptors, of which
    it is given more if the system allows that."""
    wanted, other = STRANGERS + 2 * tasks, BACKLOG + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != soft < wanted + other:
        soft = wanted + other if hard == resource.RLIM_INFINITY else min(hard, wanted + other)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(FEWEST, min(wanted, soft - other))
    return wanted


class Connections:
    """The connections of a port."""

    def __init__(self, most: int, what: str, log: Callable[[str], None], *, own_user: bool = False) -> None:
        """
        Args:
            what: the name of the port in log lines.
            own_user: whether only processes of this user, and of root, may connect. Of a port on loopback. Otherwise
                strangers of one address have half of the connections at most.
        """
        self._most, self._what, self._log, self._own_user = most, what, log, own_user
        self._most_of_one = most if own_user else most // 2
        self._waiting = dict[asyncio.Transport, float]()
        """Since when each stranger is expected to act, the longest first."""
        self._silent = dict[asyncio.Transport, float]()
        """The same of peers that are trusted."""
        self._addresses = dict[asyncio.Transport, str]()
        """Of all connections."""
        self._strangers = Counter[str]()
        """Number of strangers' connections by address."""
        self._trusted = set[asyncio.Transport]()
        self._logged = dict[str, float]()
        self.buffer = bytearray(READ_BYTES)
        """What has just been read of one of them: asyncio hands it over before it reads the next."""

    def __len__(self) -> int:
        return len(self._addresses)

    def admit(self, transport: asyncio.Transport) -> bool:
        """Takes a new connection, and closes another one if there are too many; False if it closes the new one."""
        peer = transport.get_extra_info("peername") or ("",)
        if self._own_user and not sockets.is_own(user := sockets.user_of(peer, transport.get_extra_info("sockname"))):
            if user is not None:
                self._say("user", f"{self._what}: closes connections of another user of this machine")
            transport.abort()
            return False
        address = peer[0]
        if self._strangers[address] >= self._most_of_one:
            self._close_longest(address)
        elif len(self) >= self._most and not self._close_longest():
            transport.abort()
            return False
        self._addresses[transport] = address
        self._strangers[address] += 1
        self._waiting[transport] = time.monotonic()
        return True

    def serves(self, transport: asyncio.Transport) -> None:
        """A whole request has come: the peer waits."""
        self._waiting.pop(transport, None)
        self._silent.pop(transport, None)

    def waits(self, transport: asyncio.Transport) -> None:
        """The answer is there: it is the peer's turn to read it, and to ask again."""
        if transport in self._addresses:
            turn = self._silent if transport in self._trusted else self._waiting
            turn[transport] = time.monotonic()

    def trust(self, transport: asyncio.Transport) -> None:
        """The peer has proven to belong to the job."""
        if transport in self._addresses and transport not in self._trusted:
            self._trusted.add(transport)
            self._forget_stranger(self._addresses[transport])

    def trusts(self, transport: asyncio.Transport) -> bool:
        return transport in self._trusted

    def lost(self, transport: asyncio.Transport) -> None:
        """The connection has ended."""
        self.serves(transport)
        if (address := self._addresses.pop(transport, None)) is not None:
            if transport in self._trusted:
                self._trusted.remove(transport)
            else:
                self._forget_stranger(address)

    def close_late(self) -> None:
        """Ends connections whose peers have had their time."""
        now = time.monotonic()
        for turn, seconds in ((self._waiting, REQUEST_SECONDS), (self._silent, TRUSTED_SECONDS)):
            for transport, since in list(turn.items()):
                if now - since < seconds:
                    break
                if not transport.get_write_buffer_size() or now - since > ANSWER_SECONDS:
                    self._close(transport)

    async def keep_closing_late(self) -> None:
        """Runs while the port is open."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.close_late()

    def _close_longest(self, address: str | None = None) -> bool:
        """Ends the connection that waits longest, of an address or of all; False if none waits."""
        for transport in self._waiting:
            if address is None or self._addresses[transport] == address:
                found = self._addresses[transport]
                self._say("many", f"{self._what}: {len(self)} connections are open; closes those that wait, of {found}")
                self._close(transport)
                return True
        return False

    def _close(self, transport: asyncio.Transport) -> None:
        self.lost(transport)
        transport.abort()

    def _forget_stranger(self, address: str) -> None:
        self._strangers[address] -= 1
        if not self._strangers[address]:
            del self._strangers[address]

    def _say(self, kind: str, text: str) -> None:
        now = time.monotonic()
        if now - self._logged.get(kind, -LOG_SECONDS) >= LOG_SECONDS:
            self._logged[kind] = now
            self._log(text)


class Guarded(asyncio.BufferedProtocol):
    """A protocol whose connections are bounded."""

    def __init__(self, inner: asyncio.Protocol, connections: Connections) -> None:
        self._inner, self._connections, self._admitted = inner, connections, False
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._admitted = self._connections.admit(transport)
        if self._admitted:
            self._inner.connection_made(transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._connections.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._inner.data_received(bytes(self._connections.buffer[:nbytes]))

    def connection_lost(self, error: Exception | None) -> None:
        if self._admitted:
            self._connections.lost(self._transport)
            self._inner.connection_lost(error)


def quiet_about_descriptors(loop: asyncio.AbstractEventLoop, log: Callable[[str], None]) -> None:
    """Where no descriptor is left for a new connection, asyncio logs a traceback for each of BACKLOG attempts a second:
    of these, one line a minute."""
    logged = -LOG_SECONDS

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        nonlocal logged
        if "out of system resource" not in str(context.get("message")):
            loop.default_exception_handler(context)
        elif time.monotonic() - logged >= LOG_SECONDS:
            logged = time.monotonic()
            log(f"no new connection can be accepted: {context.get('exception')}")

    loop.set_exception_handler(handle)
