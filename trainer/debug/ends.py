"""The beginning and the end of a log that may be of any length."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from trainer.model_dir.regular import regular

MOST_BYTES = 2 << 20
"""Limit of one log."""
ALL_BYTES = 32 << 20
"""Limit of all logs of a job."""
LEAST_BYTES = 32 << 10
"""Limit of one log, however many there are."""
_TIME = 30
"""Characters of the time before a line."""


class Ends(NamedTuple):
    head: bytes
    tail: bytes = b""
    left_out: str = ""
    """What is missing between them; empty if nothing is."""


def share(logs: int) -> int:
    """Bytes that each of so many logs may have."""
    return max(LEAST_BYTES, min(MOST_BYTES, ALL_BYTES // max(logs, 1)))


def of_file(path: Path, most: int) -> Ends:
    """The first and the last lines of a file, `most` bytes together.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb", opener=regular) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= most:
            return Ends(file.read(most))
        head = whole_lines_before(file.read(most // 4))
        file.seek(size - (most - most // 4))
        tail = whole_lines_after(file.read(most - most // 4))
        return Ends(head, tail, f"{size - len(head) - len(tail):,} of {size:,} bytes")


def first(chunks: Iterable[bytes], most: int) -> tuple[bytes, bool]:
    """The first lines of a stream, and whether that is all of it."""
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= most:
            return whole_lines_before(head[:most]), False
    return head, True


class Tail:
    """The last lines of a stream."""

    def __init__(self, most: int) -> None:
        self._most, self._kept, self._cut = most, bytearray(), False

    def add(self, chunk: bytes) -> None:
        self._kept += chunk
        if len(self._kept) > 2 * self._most:
            del self._kept[: -self._most]
            self._cut = True

    def read(self) -> bytes:
        cut = self._cut or len(self._kept) > self._most
        return whole_lines_after(bytes(self._kept[-self._most :])) if cut else bytes(self._kept)


def last(chunks: Iterable[bytes], most: int) -> bytes:
    """The last lines of a stream, which is read to its end."""
    tail = Tail(most)
    for chunk in chunks:
        tail.add(chunk)
    return tail.read()


def joined(head: bytes, tail: bytes) -> Ends:
    """The ends of a log whose lines begin with their times: they may overlap."""
    newest = head.rstrip(b"\n").rpartition(b"\n")[2][:_TIME]
    lines = tail.split(b"\n")
    later = next((number for number, line in enumerate(lines) if line[:_TIME] > newest), len(lines))
    if later or not head:
        return Ends(head + b"\n".join(lines[later:]))
    begin, end = (each.partition(b" ")[0].decode(errors="replace") for each in (newest, lines[0]))
    return Ends(head, tail, f"the lines between {begin} and {end}")


def whole_lines_before(chunk: bytes) -> bytes:
    """Without a last line that is cut off: half a secret is not recognised."""
    return chunk[: chunk.rfind(b"\n") + 1]


def whole_lines_after(chunk: bytes) -> bytes:
    """Without a first line that is cut off."""
    return chunk[chunk.find(b"\n") + 1 :] if b"\n" in chunk else b""
