"""Connects the tasks of a ring (ring.py), each to the next one."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import secrets
import socket
import time
from collections.abc import Callable

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
"""Maximum wait for the token of a new connection: other connections wait meanwhile."""
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
    host, port = task.address
    if task.on_loopback:
        return socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
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


def _accepted(listener: socket.socket, token: bytes, answer: bytes, deadline: float, failed: str) -> socket.socket:
    """The connection of the task that knows the token."""
    while True:
        listener.settimeout(max(_REDIAL_SECONDS, deadline - time.monotonic()))
        try:
            connection, _ = listener.accept()
        except OSError as error:
            raise _unconnected(failed, error) from None
        try:
            _require(connection, token, min(deadline, time.monotonic() + _TOKEN_SECONDS))
            connection.sendall(answer)
            return _ready(connection)
        except OSError as error:
            connection.close()
            if time.monotonic() > deadline:
                raise _unconnected(failed, error) from None


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
