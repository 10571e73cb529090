"""Lines of all tasks, merged: what they have written, made harmless, in a store of a limited size."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

LONGEST_LINE = 2000
"""The most characters of a line; its rest is left out."""
MOST_BYTES = 4 << 20
"""The most bytes of all lines that are kept."""
_BYTES_OF_A_LINE = 200
"""Bytes that Python needs for a line besides its text."""
_MOST_NEW = 10_000
DEFAULT_LINES, MOST_LINES = 500, 5000
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")
"""Matches what a terminal obeys: colours, titles."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Matches control characters, also those that make browsers write backwards."""
_TENSORFLOW = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}): [IWEF] ")
_ABSL = re.compile(r"[IWEF]0000 00:00:(\d{10}\.\d{6}) ")
"""Matches the start of a line that absl logs before its logger is set up: the time is in seconds since the epoch."""


class Entry(NamedTuple):
    number: int
    """Lines are numbered as they come; those that came between two questions, in the order of time."""
    time: float
    """When it was written, in seconds since the epoch."""
    task: str
    text: str


@dataclass(frozen=True)
class LogQuery:
    """Which lines are wanted."""

    after: int = 0
    """Only lines with a higher number than this are found."""
    task: str = ""
    """The task whose lines are found; empty for those of all tasks."""
    search: str = ""
    """Text that a line must have, in upper or lower case."""
    limit: int = DEFAULT_LINES
    """The most lines that are found: the newest."""


class Lines:
    """The newest lines."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._bytes, self._next = most_bytes, 0, 1
        self._entries: deque[Entry] = deque()
        self._new: list[tuple[float, str, str]] = []
        """Time, task and text of the lines that were not fetched yet."""
        self.left_out = 0
        """Number of lines that never came here, because a task wrote more than it sends."""

    def add(self, task: str, lines: Iterable[tuple[float, str]]) -> None:
        """Adds lines of a task: times in seconds since the epoch, and texts as of `shown`."""
        self._new += [(when, task, text) for when, text in lines]
        if len(self._new) > _MOST_NEW:
            self._merge()

    def _merge(self) -> None:
        """Numbers the new lines in the order of time."""
        for when, task, text in sorted(self._new, key=lambda each: each[0]):
            self._entries.append(Entry(self._next, when, task, text))
            self._next += 1
            self._bytes += len(text) + _BYTES_OF_A_LINE
        self._new.clear()
        while self._bytes > self._most:
            self._bytes -= len(self._entries.popleft().text) + _BYTES_OF_A_LINE

    def clear(self) -> None:
        """Forgets the lines, not their numbers."""
        self._entries.clear()
        self._new.clear()
        self._bytes = self.left_out = 0

    def find(self, query: LogQuery, hide: Callable[[str], str] = str) -> dict[str, object]:
        """The newest lines that match, in the order of their numbers, and how many others would.

        Args:
            hide: returns a text as it may be shown.
        """
        self._merge()
        wanted = query.search.casefold()
        found = [
            each
            for each in self._entries
            if each.number > query.after
            and query.task in ("", each.task)
            and (not wanted or wanted in each.text.casefold())
        ]
        newest = found[-query.limit :] if query.limit else []
        rows = [{"n": each.number, "time": each.time, "task": each.task, "text": hide(each.text)} for each in newest]
        return {"lines": rows, "left_out": len(found) - len(rows) + self.left_out}


def shown(line: bytes) -> str:
    """A line as text of a limited length, without what only a terminal understands."""
    text = line[: 4 * LONGEST_LINE].decode(errors="replace")
    text = _ESCAPES.sub("", text).rstrip("\r").rpartition("\r")[2]  # what a progress bar has left
    text = _CONTROL.sub(" ", text.expandtabs())
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 3]}..."


def time_in(text: str) -> float | None:
    """The time that TensorFlow has written before a line, in seconds since the epoch."""
    if found := _ABSL.match(text):
        return float(found[1])
    if found := _TENSORFLOW.match(text):
        try:
            return datetime.fromisoformat(found[1]).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    return None
