"""Connects the tasks of a ring (ring.py), each to the next one."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from typing import cast

from trainer import sockets
from trainer.job.cluster import Task
from trainer.job.errors import UnreachableError, UserError
from trainer.job.names import gradients_port, split_address, task_name
from trainer.training.exchange.ring import Ring
from trainer.training.private import tensorflow_private

_FORM_SECONDS = 60.0
"""Maximum wait for the peers to listen: all tasks have created their strategy by then."""
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


def form(task: Task) -> Ring:
    """Connects this task to the next one, and the one before it to this task.

    A task listens where its TensorFlow does, and tells the others its port, a token and the answer to it through
    TensorFlow's coordination service: so each side knows that the other belongs to the job.

    Raises:
        UnreachableError: they cannot be connected.
    """
    members = task.members()
    rank, size = members.index((task.type, task.index)), len(members)
    token, answer = secrets.token_bytes(16), secrets.token_bytes(16)
    with _listener(task) as listener:
        own_port = listener.getsockname()[1]
        tensorflow_private.tell_tasks(f"trainer/ring/{rank}", json.dumps([own_port, token.hex(), answer.hex()]))
        (kind, index), before = members[(rank + 1) % size], task_name(*members[rank - 1])
        deadline = time.monotonic() + _FORM_SECONDS
        port, *theirs = json.loads(tensorflow_private.told(f"trainer/ring/{(rank + 1) % size}", _FORM_SECONDS))
        their_token, their_answer = map(bytes.fromhex, theirs)
        address = split_address(task.cluster[kind][index])[0], port
        failed = f"{task.name} cannot connect to {task_name(kind, index)} at {address[0]}:{port}"
        dial = functools.partial(_dialled, address, their_token, deadline, failed)
        # All tasks dial before they accept: a wait for the answer before that would never end.
        following = dial()
        previous = _accepted(
            listener, token, answer, deadline, f"{before} did not connect to port {own_port} of {task.name}"
        )
        return Ring(rank, size, _answered(following, their_answer, dial, deadline, failed), previous)


def _unconnected(what: str, error: OSError) -> UnreachableError:
    hint = "to add up gradients; allow it, or set communication.implementation=ring"
    return UnreachableError(f"{what} ({error.strerror or error}), {hint}")


def _listener(task: Task) -> socket.socket:
    assert task.address is not None
    name, port = task.address
    if task.on_loopback:
        return socket.create_server((name, 0), family=socket.AF_INET6 if ":" in name else socket.AF_INET)
    families = (True, False) if socket.has_dualstack_ipv6() else (False,)
    for wanted, any_family in itertools.product((gradients_port(port), 0), families):
        family = socket.AF_INET6 if any_family else socket.AF_INET
        # Another task of this machine may have the port, or it is beyond 65535; a host may have no IPv6.
        with contextlib.suppress(OSError, OverflowError):
            return socket.create_server(("", wanted), family=family, dualstack_ipv6=any_family)
    raise UserError(f"{task.name}: no port is free to listen on for gradients")


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
