"""Adds up arrays over the tasks of a cluster: a ring of TCP connections, from each task to the next.

TensorFlow's own ring takes 2.8 ns of CPU for each byte that a task exchanges, most of it in gRPC and protocol buffers;
sockets take 0.4 (decision 80). Two threads do the work while the task computes; they do not hold the GIL while they
send, receive and add. The algorithm is that of tensorflow/core/common_runtime/ring_reducer.cc: each array has as many
chunks as there are tasks. In the first rounds a chunk's sum goes around the ring and grows, and in the others the whole
sums go around. So all tasks have the same bits.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import secrets
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.job.cluster import Task
from trainer.job.errors import UserError
from trainer.job.names import gradients_port, split_address, task_name
from trainer.training import tensorflow_private
from trainer.training.parts import PART

Array = npt.NDArray[np.floating]

LOST = "the connection for gradients was lost"
"""Begins the message of the error if a peer is gone."""
_FORM_SECONDS = 60.0
"""For the peers to listen: all tasks have created their strategy by then."""
_DIAL_SECONDS = 2.0
_POLL_SECONDS = 0.01
_TOKEN_BYTES = 16
_HEADER = struct.Struct("<IIIII")
"""Of a message: key, use, part, round, and bytes."""


@dataclass
class _Part:
    """One that is on its way."""

    given: Array
    total: Array
    bounds: list[int]
    messages: int
    """Messages that are not sent or not received yet. TensorFlow may overwrite a sum that it is given, so all messages
    that are read from it must be sent before."""
    done: threading.Event = field(default_factory=threading.Event)

    def chunk(self, of: Array, number: int) -> Array:
        i = number % (len(self.bounds) - 1)
        return of[self.bounds[i] : self.bounds[i + 1]]


class Ring:
    """This task's connections."""

    def __init__(self, rank: int, size: int, following: socket.socket, previous: socket.socket) -> None:
        self._rank, self._size, self._following, self._previous = rank, size, following, previous
        self.keys = itertools.count()
        """For the arrays of a graph: all tasks trace the same steps in the same order."""
        self._parts: dict[tuple[int, int, int], _Part] = {}
        self._began = threading.Condition()
        self._uses = defaultdict[int, int](int)
        self._calls: dict[int, tuple[Array, list[tuple[int, int, int]]]] = {}
        self._tickets = itertools.count()
        self._to_send: queue.SimpleQueue[tuple[bytes, memoryview, _Part]] = queue.SimpleQueue()
        self._failure = ""
        for each in (self._send, self._receive):
            threading.Thread(target=self._until_it_fails, args=(each,), name="ring", daemon=True).start()

    def begin(self, key: int, given: Array) -> int:
        """Begins to add up an array of one dimension; returns a ticket for `end`.

        Args:
            key: names the array: each task adds up its first one of this key to the first one of the others.
        """
        use = self._uses[key] = self._uses[key] + 1
        total, parts = _aligned(given), {}
        for number, start in enumerate(range(0, max(1, given.size), PART // given.itemsize)):
            own, sums = (each[start : start + PART // given.itemsize] for each in (given, total))
            bounds = [own.size * i // self._size for i in range(self._size + 1)]
            parts[key, use, number] = _Part(own, sums, bounds, 4 * (self._size - 1))
        ticket = next(self._tickets)
        self._calls[ticket] = total, list(parts)
        with self._began:
            self._parts |= parts
            for part in parts.values() if self._failure else ():
                part.done.set()
            self._began.notify()
        for label, part in parts.items():
            self._put(label, part, 0, part.chunk(part.given, self._rank))
        return ticket

    def end(self, ticket: int) -> Array:
        """Waits for the sum over all tasks.

        Raises:
            ConnectionError: a peer is gone, or sends arrays of another size.
        """
        total, labels = self._calls.pop(ticket)
        for label in labels:
            self._parts[label].done.wait()
            if self._failure:
                raise ConnectionError(self._failure)
        with self._began:
            for label in labels:
                del self._parts[label]
        return total

    def _put(self, label: tuple[int, int, int], part: _Part, number: int, chunk: Array) -> None:
        self._to_send.put((_HEADER.pack(*label, number, chunk.nbytes), chunk.view(np.uint8).data, part))

    def _passed(self, part: _Part) -> None:
        """Counts a message that was sent or received."""
        with self._began:
            part.messages -= 1
            if not part.messages:
                part.done.set()

    def _send(self) -> None:
        header, chunk, part = self._to_send.get()
        sent = self._following.sendmsg([header, chunk])
        self._following.sendall(header[sent:])
        self._following.sendall(chunk[max(0, sent - len(header)) :])
        self._passed(part)

    def _receive(self) -> None:
        *label, number, size = _HEADER.unpack(self._read(bytearray(_HEADER.size)))
        key, use, index = label
        with self._began:
            self._began.wait_for(lambda: (key, use, index) in self._parts or self._failure)
            if self._failure:
                return
            part = self._parts[key, use, index]
        which = self._rank - 1 - number
        chunk = part.chunk(part.total, which)
        if chunk.nbytes != size:
            raise ConnectionError(f"{size} bytes came for {chunk.nbytes}: tasks compute different gradients")
        self._read(chunk.view(np.uint8).data)
        if number < self._size - 1:
            _add(chunk, part.chunk(part.given, which))
        if number < 2 * self._size - 3:
            self._put((key, use, index), part, number + 1, chunk)
        self._passed(part)

    def _read(self, into: bytearray | memoryview) -> bytes | bytearray | memoryview:
        view = memoryview(into)
        while len(view):
            count = self._previous.recv_into(view, len(view), socket.MSG_WAITALL)
            if not count:
                raise ConnectionError("the task before this one has closed it")
            view = view[count:]
        return into

    def _until_it_fails(self, step: Callable[[], None]) -> None:
        try:
            while not self._failure:
                step()
        except OSError as error:
            with self._began:
                self._failure = self._failure or f"{LOST}: {error.strerror or error}"
                for part in self._parts.values():
                    part.done.set()
                self._began.notify_all()


def _add(to: Array, given: Array) -> None:
    if to.itemsize < np.float32().itemsize:
        # With the same bits as in their own type, in 0.4 of the time (bfloat16).
        to[:] = to.astype(np.float32) + given.astype(np.float32)
    else:
        np.add(to, given, out=to)


def _aligned(like: Array) -> Array:
    """An empty array, aligned so that TensorFlow takes it without a copy (EIGEN_MAX_ALIGN_BYTES, py_func.cc)."""
    memory = np.empty(like.nbytes + 64, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + like.nbytes].view(like.dtype)


def form(task: Task) -> Ring:
    """Connects this task to the next one, and the one before it to this task.

    A task listens where its TensorFlow does, and tells the others its port and a token through TensorFlow's
    coordination service, so that no others take part. To be called once the strategy is made.

    Raises:
        tf.errors.UnknownError: they cannot be connected.
    """
    members = task.members()
    rank, size = members.index((task.type, task.index)), len(members)
    token = secrets.token_hex(_TOKEN_BYTES // 2)
    with _listener(task) as listener:
        own = listener.getsockname()[1]
        tensorflow_private.tell_tasks(f"trainer/ring/{rank}", json.dumps([own, token]))
        (kind, index), before = members[(rank + 1) % size], task_name(*members[rank - 1])
        deadline = time.monotonic() + _FORM_SECONDS
        port, theirs = json.loads(tensorflow_private.told(f"trainer/ring/{(rank + 1) % size}", _FORM_SECONDS))
        host = split_address(task.cluster[kind][index])[0]
        following = _dialled((host, port), theirs, deadline, f"{task.name} cannot connect to {task_name(kind, index)}")
        previous = _accepted(listener, token, deadline, f"{before} did not connect to port {own} of {task.name}")
    return Ring(rank, size, following, previous)


def _unconnected(what: str, error: OSError) -> tf.errors.UnknownError:
    hint = "to add up gradients; allow it, or set communication.implementation=ring"
    return tf.errors.UnknownError(None, None, f"{what} ({error.strerror or error}), {hint}")


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


def _dialled(address: tuple[str, int], token: str, deadline: float, failed: str) -> socket.socket:
    while True:
        try:
            found = socket.create_connection(address, _DIAL_SECONDS)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise _unconnected(f"{failed} at {address[0]}:{address[1]}", error) from None
            time.sleep(_POLL_SECONDS)
    found.sendall(token.encode())
    return _without_delay(found)


def _accepted(listener: socket.socket, token: str, deadline: float, failed: str) -> socket.socket:
    """The connection of the task that knows the token."""
    while True:
        listener.settimeout(max(_POLL_SECONDS, deadline - time.monotonic()))
        try:
            found, _ = listener.accept()
        except OSError as error:
            raise _unconnected(failed, error) from None
        found.settimeout(_DIAL_SECONDS)
        with contextlib.suppress(OSError):
            if secrets.compare_digest(found.recv(_TOKEN_BYTES, socket.MSG_WAITALL), token.encode()):
                return _without_delay(found)
        found.close()


def _without_delay(made: socket.socket) -> socket.socket:
    made.settimeout(None)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
