"""Connects the tasks of a ring (ring.py), each to the next one."""

from __future__ import annotations

import contextlib
import functools
import hmac
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from typing import cast

from trainer import sockets
from trainer.job import environment
from trainer.job.cluster import Task
from trainer.job.errors import UnreachableError
from trainer.job.names import split_address, task_name
from trainer.protocol.orders import Neighbours
from trainer.training.exchange.ring import Ring

_DIAL_SECONDS = 2.0
"""Maximum wait for one attempt to connect."""
_TOKEN_SECONDS = 2.0
"""Maximum wait for the token of a new connection."""
_MOST_CALLERS = 256
"""Connections whose tokens are awaited; of more, the oldest are closed."""
_REDIAL_SECONDS, _MOST_REDIAL_SECONDS = 0.01, 0.5
"""Seconds from an attempt to connect that failed to the next one, at first and after many."""
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10}
"""TCP's keep-alive, in seconds. Firewalls forget connections on which nothing is sent, as during a long validation."""


def listener() -> socket.socket:
    """The socket that listens for gradients, which this process has from its supervisor."""
    return socket.socket(fileno=os.dup(int(os.environ[environment.GRADIENTS])))


def form(task: Task, beside: Neighbours, listener: socket.socket, seconds: float) -> Ring:
    """Connects this task to the next one, and the one before it to this task.

    Each knows the other by what it sends first, which follows from the key of the generation.

    Args:
        listener: to which the one before connects.
        seconds: the longest wait for the others: their children may still be in the imports.

    Raises:
        UnreachableError: they cannot be connected.
    """
    members = task.members()
    rank, size = members.index((task.type, task.index)), len(members)
    (kind, index), before = members[(rank + 1) % size], task_name(*members[rank - 1])
    deadline = time.monotonic() + seconds
    address = split_address(task.cluster[kind][index])[0], beside.following
    failed = f"{task.name} cannot connect to {task_name(kind, index)} at {address[0]}:{address[1]}"
    missing = f"{before} did not connect to port {listener.getsockname()[1]} of {task.name}"
    token, answer = _words(beside.key, (rank + 1) % size)
    dial = functools.partial(_dialled, address, token, deadline, failed)
    # All tasks dial before they accept: a wait for the answer before that would never end.
    following = dial()
    previous = _accepted(listener, *_words(beside.key, rank), deadline, missing)
    return Ring(rank, size, _answered(following, answer, dial, deadline, failed), previous)


def _words(key: str, rank: int) -> tuple[bytes, bytes]:
    """What a task of this rank expects of the one before, and what it answers."""
    digest = hmac.digest(key.encode(), str(rank).encode(), "sha256")
    return digest[:16], digest[16:]


def _unconnected(what: str, error: OSError) -> UnreachableError:
    hint = "to add up gradients; allow it, or set communication.implementation=ring"
    return UnreachableError(f"{what} ({error.strerror or error}), {hint}")


def _dialled(address: tuple[str, int], token: bytes, deadline: float, failed: str) -> socket.socket:
    pause = _REDIAL_SECONDS
    while True:
        try:
            made = socket.create_connection(address, _DIAL_SECONDS)
            made.sendall(token)
            return made
        except OSError as error:
            if time.monotonic() > deadline:
                raise _unconnected(failed, error) from None
            time.sleep(pause)
            pause = min(2 * pause, _MOST_REDIAL_SECONDS)


class _Callers:
    """Connections to a listener, of which each has to send some bytes first. All are awaited at the same time, so that
    one that sends nothing keeps nobody out."""

    def __init__(self, listener: socket.socket, size: int) -> None:
        self._listener, self._size = listener, size
        self._heard = dict[socket.socket, bytes]()
        """What each has sent, the oldest connection first."""
        self._until = dict[socket.socket, float]()
        listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    def __enter__(self) -> _Callers:
        return self

    def __exit__(self, *_: object) -> None:
        for each in list(self._heard):
            self._take(each).close()
        self._selector.close()

    def next(self, deadline: float) -> tuple[socket.socket, bytes] | None:
        """A connection that has sent its bytes; None at the deadline."""
        while (now := time.monotonic()) < deadline:
            while (oldest := next(iter(self._until), None)) and self._until[oldest] <= now:
                self._take(oldest).close()
            end = min(deadline, self._until[oldest]) if oldest else deadline
            for key, _ in self._selector.select(end - now):
                if key.fileobj is self._listener:
                    self._accept()
                elif (connection := cast("socket.socket", key.fileobj)) in self._heard and self._is_complete(
                    connection
                ):
                    heard = self._heard[connection]
                    return self._take(connection), heard
        return None

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it has gone meanwhile
            connection, peer = self._listener.accept()
            if len(self._heard) >= _MOST_CALLERS:
                self._take(next(iter(self._heard))).close()
            if not sockets.is_own(sockets.user_of(peer, connection.getsockname())):
                connection.close()
                return
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ)
            self._heard[connection], self._until[connection] = b"", time.monotonic() + _TOKEN_SECONDS

    def _is_complete(self, connection: socket.socket) -> bool:
        try:
            part = connection.recv(self._size - len(self._heard[connection]))
        except BlockingIOError:
            return False
        except OSError:
            part = b""
        if not part:
            self._take(connection).close()
            return False
        self._heard[connection] += part
        return len(self._heard[connection]) == self._size

    def _take(self, connection: socket.socket) -> socket.socket:
        del self._heard[connection], self._until[connection]
        self._selector.unregister(connection)
        return connection


def _accepted(listener: socket.socket, token: bytes, answer: bytes, deadline: float, failed: str) -> socket.socket:
    """The connection of the task that knows the token."""
    with _Callers(listener, len(token)) as callers:
        while caller := callers.next(deadline):
            connection, heard = caller
            with contextlib.suppress(OSError):
                if secrets.compare_digest(heard, token):
                    connection.settimeout(_TOKEN_SECONDS)
                    connection.sendall(answer)
                    return _ready(connection)
            connection.close()
    raise _unconnected(failed, TimeoutError("timed out"))


def _answered(
    made: socket.socket, answer: bytes, dial: Callable[[], socket.socket], deadline: float, failed: str
) -> socket.socket:
    """The connection once the peer has accepted it, or a new one if it did not."""
    while True:
        try:
            _require(made, answer, deadline)
            return _ready(made)
        except OSError as error:
            made.close()
            if time.monotonic() > deadline:
                raise _unconnected(failed, error) from None
            time.sleep(_MOST_REDIAL_SECONDS)
            made = dial()


def _require(made: socket.socket, expected: bytes, deadline: float) -> None:
    """Reads from a connection as many bytes as are expected.

    Raises:
        OSError: they are others, or do not come until the deadline.
    """
    got = b""
    while len(got) < len(expected):
        made.settimeout(max(_REDIAL_SECONDS, deadline - time.monotonic()))
        part = made.recv(len(expected) - len(got))
        if not part:
            raise ConnectionError("it has closed the connection")
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")
        got += part
    if not secrets.compare_digest(got, expected):
        raise ConnectionError("another program is there")


def _ready(made: socket.socket) -> socket.socket:
    made.settimeout(None)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in _KEEPALIVE.items():
        if hasattr(socket, name):  # macOS has other names
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    return made
