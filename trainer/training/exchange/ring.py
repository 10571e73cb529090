"""Adds up and gathers arrays over the tasks of a cluster: a ring of TCP connections, from each task to the next.

It is what `communication.implementation: auto` uses; `ring` is TensorFlow's own (collective_sums.py).

TensorFlow's own ring takes 2.8 ns of CPU for each byte that a task exchanges, most of it in gRPC and protocol buffers;
sockets take 0.4 (decision 80). Two threads do the work while the task computes; they do not hold the GIL while they
send, receive and add. The algorithm is that of tensorflow/core/common_runtime/ring_reducer.cc: each array has as many
chunks as there are tasks. In the first rounds a chunk's sum goes around the ring and grows, and in the others the whole
sums go around. So all tasks have the same bits. Arrays to be gathered go around as they are, and may differ in size.
"""

from __future__ import annotations

import itertools
import queue
import socket
import struct
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from trainer.model_dir.arrays import Array, aligned
from trainer.training.exchange.collective_sums import PART

LOST = "the connection for gradients was lost"
"""Begins the message of the error if a peer is gone."""
DIFFERENT = "tasks compute different gradients"
"""Begins the message of the error if their sizes differ."""
NOW = 2**32 - 1
"""The key of arrays that are added up outside of graphs, whose keys count up from 0."""
_SWITCH_SECONDS = 0.0002
"""Most seconds for which another thread of Python keeps the GIL that the ring waits for. Each message takes the GIL
several times, and by default a busy thread, as of a generator in data(), keeps it for 5 ms each time: an exchange of
6.6 MB then took 21 to 26 ms, with this 6, as beside a busy process (decision 91)."""
_HEADER = struct.Struct("<IIIII")
"""The header of a message: key, use, part, round, and bytes."""


_Label: TypeAlias = tuple[int, int, int]
"""Key, use and part."""


@dataclass
class _Transfer:
    """What is being sent and received."""

    messages: int
    """Messages that are not sent or not received yet. TensorFlow may overwrite a sum that it is given, so all messages
    that are read from it must be sent before."""
    done: threading.Event = field(default_factory=threading.Event, kw_only=True)


@dataclass
class _Part(_Transfer):
    """A part of an array that is added up."""

    values: Array
    total: Array
    bounds: list[int]

    def chunk(self, of: Array, number: int) -> Array:
        i = number % (len(self.bounds) - 1)
        return of[self.bounds[i] : self.bounds[i + 1]]


@dataclass
class _Gathered(_Transfer):
    """The arrays of all tasks."""

    arrays: list[Array]


class _Memory:
    """Memory of sums. That of a large one is used again once TensorFlow has dropped the array: new pages take longer
    than the exchange of what they hold."""

    def __init__(self) -> None:
        self._free = defaultdict[int, list[Array]](list)

    def like(self, array: Array) -> Array:
        """An array without values yet, which TensorFlow takes without a copy."""
        free = self._free[array.nbytes]
        try:
            memory = free.pop()
        except IndexError:
            memory = aligned(array.nbytes)
        made = memory.view(array.dtype)
        if array.nbytes >= PART:
            weakref.finalize(made, free.append, memory).atexit = False
        return made


class Ring:
    """This task's connections."""

    def __init__(self, rank: int, size: int, following: socket.socket, previous: socket.socket) -> None:
        self.rank, self.size, self._following, self._previous = rank, size, following, previous
        self.keys = itertools.count()
        """Keys for the arrays of a graph. All tasks have the same: they trace the same steps in the same order."""
        self._memory = _Memory()
        self._parts: dict[_Label, _Transfer] = {}
        self._began = threading.Condition()
        self._uses = defaultdict[int, int](int)
        self._calls: dict[int, tuple[Array | list[Array], list[_Label]]] = {}
        self._tickets = itertools.count()
        self._to_send: queue.SimpleQueue[tuple[bytes, memoryview, _Transfer]] = queue.SimpleQueue()
        self._failure: Exception | None = None
        if sys.getswitchinterval() > _SWITCH_SECONDS:
            sys.setswitchinterval(_SWITCH_SECONDS)
        for each in (self._send, self._receive):
            threading.Thread(target=self._until_it_fails, args=(each,), name="ring", daemon=True).start()

    def begin(self, key: int, array: Array) -> int:
        """Begins to add up an array of one dimension; returns a ticket for `end`.

        Args:
            key: names the array: each task adds up its first one of this key to the first one of the others.
        """
        use = self._uses[key] = self._uses[key] + 1
        total, parts = self._memory.like(array), dict[_Label, _Part]()
        for number, start in enumerate(range(0, max(1, array.size), PART // array.itemsize)):
            values, sums = (each[start : start + PART // array.itemsize] for each in (array, total))
            bounds = [values.size * i // self.size for i in range(self.size + 1)]
            parts[key, use, number] = _Part(4 * (self.size - 1), values, sums, bounds)
        ticket = self._begun(total, parts)
        for label, part in parts.items():
            self._put(label, part, 0, part.chunk(part.values, self.rank))
        return ticket

    def begin_to_gather(self, key: int, array: Array) -> int:
        """Begins to gather the arrays, of one dimension, of all tasks; returns a ticket for `end_to_gather`."""
        use = self._uses[key] = self._uses[key] + 1
        arrays = [array[:0]] * self.size
        arrays[self.rank] = array
        label, gathered = (key, use, 0), _Gathered(2 * (self.size - 1), arrays)
        ticket = self._begun(arrays, {label: gathered})
        self._put(label, gathered, 0, array)
        return ticket

    def end(self, ticket: int) -> Array:
        """Waits for the sum over all tasks.

        Raises:
            ConnectionError: a peer is gone. A sum that was complete before is returned nevertheless.
            ValueError: a peer sends arrays of another size.
            RuntimeError: a thread failed.
        """
        total = self._ended(ticket)
        assert not isinstance(total, list)
        return total

    def end_to_gather(self, ticket: int) -> Array:
        """Waits for the arrays of all tasks; returns them one behind the other, by rank. Raises as `end`."""
        return np.concatenate(self._ended(ticket))

    def _begun(self, result: Array | list[Array], parts: Mapping[_Label, _Transfer]) -> int:
        ticket = next(self._tickets)
        self._calls[ticket] = result, list(parts)
        with self._began:
            self._parts |= parts
            for part in parts.values() if self._failure else ():
                part.done.set()
            self._began.notify()
        return ticket

    def _ended(self, ticket: int) -> Array | list[Array]:
        result, labels = self._calls.pop(ticket)
        for label in labels:
            self._parts[label].done.wait()
            if self._failure and self._parts[label].messages:
                raise self._failure
        with self._began:
            for label in labels:
                del self._parts[label]
        return result

    def _put(self, label: _Label, part: _Transfer, number: int, chunk: Array) -> None:
        self._to_send.put((_HEADER.pack(*label, number, chunk.nbytes), chunk.view(np.uint8).data, part))

    def _passed(self, part: _Transfer) -> None:
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
        take = self._take_chunk if isinstance(part, _Part) else self._take_array
        last, chunk = take(part, number, size)  # type: ignore[arg-type]
        if number < last:
            self._put((key, use, index), part, number + 1, chunk)
        self._passed(part)

    def _take_chunk(self, part: _Part, number: int, size: int) -> tuple[int, Array]:
        which = self.rank - 1 - number
        chunk = part.chunk(part.total, which)
        if chunk.nbytes != size:
            raise ValueError(f"{DIFFERENT}: {size} bytes came for {chunk.nbytes}")
        self._read(chunk.view(np.uint8).data)
        if number < self.size - 1:
            _add(chunk, part.chunk(part.values, which))
        return 2 * self.size - 3, chunk

    def _take_array(self, gathered: _Gathered, number: int, size: int) -> tuple[int, Array]:
        dtype = gathered.arrays[self.rank].dtype
        if size % dtype.itemsize:
            raise ValueError(f"{DIFFERENT}: {size} bytes came for numbers of {dtype.itemsize}")
        array = np.empty(size // dtype.itemsize, dtype)
        self._read(array.view(np.uint8).data)
        gathered.arrays[(self.rank - 1 - number) % self.size] = array
        return self.size - 2, array

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
            with np.errstate(all="ignore"):  # of float16 some sums are infinite; where warnings are errors, that is one
                while not self._failure:
                    step()
        except OSError as error:
            self._fail(ConnectionError(f"{LOST}: {error.strerror or error}"))
        except ValueError as error:
            self._fail(error)
        except Exception as error:
            self._fail(RuntimeError(f"gradients cannot be added up: {type(error).__name__}: {error}"))

    def _fail(self, failure: Exception) -> None:
        with self._began:
            self._failure = self._failure or failure
            for part in self._parts.values():
                part.done.set()
            self._began.notify_all()


def _add(to: Array, values: Array) -> None:
    if to.itemsize < np.float32().itemsize and not np.issubdtype(to.dtype, np.integer):
        # With the same bits as in their own type, in 0.4 of the time (bfloat16).
        to[:] = to.astype(np.float32) + values.astype(np.float32)
    else:
        np.add(to, values, out=to)
