"""What a program writes to stderr: copied as it comes, and its end kept, in which the reason of its end is found."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

TAIL_BYTES = 1 << 16
"""The end of stderr that is kept."""


class Stderr:
    """A pipe for a program's stderr. A thread copies it to this process's stderr and to the log: writing may block,
    and the supervisor must not."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._pipe, self.theirs = os.pipe()
        self._tail = b""
        self._thread = threading.Thread(target=self._copy, daemon=True)

    def start(self) -> None:
        """Starts to copy; the program has its end of the pipe by now."""
        os.close(self.theirs)
        self._thread.start()

    def close(self) -> None:
        """The program could not be started."""
        os.close(self.theirs)
        os.close(self._pipe)

    def wait(self, seconds: float) -> None:
        """Waits until all was copied. A process that the program left behind may keep the pipe open."""
        self._thread.join(seconds)

    @property
    def tail(self) -> str:
        return self._tail.decode(errors="replace")

    def _copy(self) -> None:
        log = -1
        with contextlib.suppress(OSError):
            log = os.open(self._log, os.O_WRONLY | os.O_APPEND)
        try:
            while chunk := os.read(self._pipe, 1 << 16):
                self._tail = (self._tail + chunk)[-TAIL_BYTES:]
                _write(chunk, log)
            if self._tail and not self._tail.endswith(b"\n"):
                _write(b"\n", log)  # the supervisor's next line is read by the launcher
        finally:
            os.close(self._pipe)
            if log >= 0:
                os.close(log)


def _write(chunk: bytes, log: int) -> None:
    for output in (2, log):
        with contextlib.suppress(OSError):
            os.write(output, chunk)
