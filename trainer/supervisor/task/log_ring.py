"""The last lines that a task has written, for the page of its job: bounded, however much it writes.

A task may write a gigabyte that is never shown, so bytes are split into lines only when a page asks for them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from trainer import clocks
from trainer.page.lines import shown

RING_BYTES = 1 << 18
_LONGEST_REST = 1 << 14
"""Bytes without a line feed that wait for one."""


class Line(NamedTuple):
    number: int
    time: float
    """Seconds since the epoch."""
    text: str


class _Piece(NamedTuple):
    first: int
    """Number of its first line."""
    size: int
    """Number of its lines."""
    time: float
    body: bytes
    """Whole lines."""


class LogRing:
    """Lines have numbers, so that a gap shows how many are gone. Threads may write."""

    def __init__(self, most_bytes: int = RING_BYTES) -> None:
        self._most, self._bytes, self._next = most_bytes, 0, 1
        self._pieces: deque[_Piece] = deque()
        self._lock = threading.Lock()

    @property
    def last(self) -> int:
        """The number of the newest line, or 0."""
        return self._next - 1

    def add(self, body: bytes, when: float | None = None) -> None:
        """Adds whole lines, the last one perhaps without its end."""
        if not body:
            return
        count = body.count(b"\n") + (not body.endswith(b"\n"))
        kept = body if len(body) <= self._most else body[-self._most :].partition(b"\n")[2]
        lines = kept.count(b"\n") + (not kept.endswith(b"\n"))
        with self._lock:
            first = self._next + count - lines
            self._next += count
            self._pieces.append(_Piece(first, lines, clocks.wall() if when is None else when, kept))
            self._bytes += len(kept)
            while self._bytes > self._most:
                self._bytes -= len(self._pieces.popleft().body)

    def lines(self, after: int = 0) -> Iterator[Line]:
        """Lines with higher numbers, the oldest first."""
        with self._lock:
            pieces = [each for each in self._pieces if each.first + each.size > after + 1]
        for piece in pieces:
            for index, line in enumerate(piece.body.removesuffix(b"\n").split(b"\n")):
                if (number := piece.first + index) > after:
                    yield Line(number, piece.time, shown(line))


class Stream:
    """One output of a task on its way into a ring, which takes whole lines."""

    def __init__(self, ring: LogRing) -> None:
        self._ring, self._rest = ring, b""

    def feed(self, chunk: bytes, when: float | None = None) -> None:
        body, feed, self._rest = (self._rest + chunk).rpartition(b"\n")
        if len(self._rest) > _LONGEST_REST:
            body, feed, self._rest = body + feed + self._rest, b"", b""
        self._ring.add(body + feed, when)
