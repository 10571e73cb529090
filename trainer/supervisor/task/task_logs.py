"""What a task has written, for the page of its job: kept by its supervisor, and reported while a page shows it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trainer import clocks
from trainer.page.lines import LONGEST_LINE, time_in
from trainer.protocol.reports import MOST_LINES, NOBODY_LOOKS
from trainer.supervisor.task.log_ring import LogRing, Stream

if TYPE_CHECKING:
    from trainer.debug.redaction import Redactor
    from trainer.job.spec import JobSpec

BATCH_SECONDS = 1.0
"""Time from one report with lines to the next."""
BATCH_BYTES, FEWEST_BYTES = 1 << 16, 1 << 11
"""Of the texts in a report, as JSON: of one task, and of one of very many."""
ALL_BYTES = 2 << 20
"""Limit of the lines of all tasks in a second."""
READ_SECONDS = 1.0
LOOKS_SECONDS = 10.0
"""How long the log is read after the last reply that asks for lines."""
READ_BYTES = 1 << 17
"""How much of the log is read at a time; what is before that is left out."""

Batch = tuple[int, list[tuple[float, str]]]


class TaskLogs:
    """Its stdout and the supervisor's own lines come as they are written. Stderr is in the log, whose end is read only
    while a page shows them."""

    def __init__(self, spec: JobSpec, log: Path, tasks: int) -> None:
        """
        Args:
            log: the file for the child's stderr.
            tasks: how many the job has, which share what the chief takes.
        """
        self._spec, self._log = spec, log
        self._ring = LogRing()
        self._budget = max(FEWEST_BYTES, min(BATCH_BYTES, ALL_BYTES // tasks))
        self._position: int | None = None
        """The position in the log; None until it was read."""
        self._stderr = Stream(self._ring)
        self._after, self._asked = NOBODY_LOOKS, 0.0
        self._batch: Batch = (0, [])
        self._batch_of, self._batch_at = NOBODY_LOOKS, 0.0
        self._redactor: Redactor | None = None

    def stream(self) -> Callable[[bytes], None]:
        """Takes the pieces of one child's stdout."""
        return Stream(self._ring).feed

    def add(self, text: str) -> None:
        """Takes a line of the supervisor."""
        self._ring.add(f"{text}\n".encode(errors="replace"))

    def want(self, after: int) -> None:
        """A page shows the lines and has those up to this number; NOBODY_LOOKS if none does."""
        self._after = after
        if after != NOBODY_LOOKS:
            self._asked = clocks.monotonic()

    def report(self) -> Batch:
        """The number of the first line, and lines with their times, that were not reported before; the same ones again
        until they have arrived."""
        if self._after == NOBODY_LOOKS:
            return 0, []
        now = clocks.monotonic()
        if self._batch_of != self._after or not self._batch[1]:
            if now - self._batch_at < BATCH_SECONDS:
                return 0, []
            self._batch, self._batch_of = self.lines(self._after), self._after
            self._batch_at = now if self._batch[1] else self._batch_at
        return self._batch

    def lines(self, after: int) -> Batch:
        """The newest lines after this number, as far as the budget goes; one at least."""
        first, found, left = 0, list[tuple[float, str]](), self._budget
        for number, when, text in reversed([*self._ring.lines(after)]):
            shown = self._without_secrets(text)[:LONGEST_LINE]
            left -= len(json.dumps(shown))
            if found and (left < 0 or len(found) == MOST_LINES):
                break
            first = number
            found.append((time_in(text) or when, shown))
        return first, found[::-1]

    def _without_secrets(self, text: str) -> str:
        if self._redactor is None:
            from trainer.debug import redaction  # only when it is needed: it compiles many patterns

            self._redactor = redaction.of_job(self._spec.model_dump(mode="json"), self._spec.secrets)
        return self._redactor.text(text)

    async def follow(self) -> None:
        """Reads the log while a page shows it, for as long as the task runs."""
        while True:
            if clocks.monotonic() - self._asked < LOOKS_SECONDS and self._after != NOBODY_LOOKS:
                await asyncio.to_thread(self.read_log)
            await asyncio.sleep(READ_SECONDS)

    def read_log(self) -> None:
        """Takes what the log has got since the last time."""
        with contextlib.suppress(OSError), self._log.open("rb") as file:
            opened = os.fstat(file.fileno())
            size, when = opened.st_size, opened.st_mtime if self._position is None else None
            begin = self._position if self._position is not None and self._position <= size else 0
            if size - begin > READ_BYTES:
                begin = size - READ_BYTES
            file.seek(begin)
            self._stderr.feed(file.read(READ_BYTES), when)
            self._position = file.tell()
