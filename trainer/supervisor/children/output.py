"""What a child writes: copied as it comes, and its end kept, in which the reason of a program's end is found."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

TAIL_BYTES = 1 << 16
"""How much of an output's end is kept."""
STDOUT, STDERR = 1, 2


class Output:
    """A pipe for a child's stdout or stderr. A thread copies it to this process's own: writing may block, and the
    supervisor must not."""

    def __init__(
        self, descriptor: int, *, log: Path | None = None, take: Callable[[bytes], None] = lambda _: None
    ) -> None:
        """
        Args:
            descriptor: STDOUT or STDERR.
            log: a file that gets it too.
            take: called with each piece, in the thread.
        """
        self._descriptor, self._log, self._take = descriptor, log, take
        self._pipe, self.theirs = os.pipe()
        self._tail = b""
        self._thread = threading.Thread(target=self._copy, daemon=True)

    def start(self) -> None:
        """Starts to copy; the child has its end of the pipe by now."""
        os.close(self.theirs)
        self._thread.start()

    def close(self) -> None:
        """The child could not be started."""
        os.close(self.theirs)
        os.close(self._pipe)

    def wait(self, seconds: float) -> None:
        """Waits until all was copied. A process that the child left behind may keep the pipe open."""
        self._thread.join(seconds)

    @property
    def tail(self) -> str:
        return self._tail.decode(errors="replace")

    def _copy(self) -> None:
        outputs = [self._descriptor]
        log = -1
        if self._log is not None:
            with contextlib.suppress(OSError):
                log = os.open(self._log, os.O_WRONLY | os.O_APPEND)
                outputs.append(log)
        try:
            while chunk := os.read(self._pipe, 1 << 16):
                self._tail = (self._tail + chunk)[-TAIL_BYTES:]
                _write(chunk, outputs)
                self._take(chunk)
            if self._descriptor == STDERR and self._tail and not self._tail.endswith(b"\n"):
                _write(b"\n", outputs)  # the supervisor's next line is read by the launcher
        finally:
            os.close(self._pipe)
            if log >= 0:
                os.close(log)


def _write(chunk: bytes, outputs: list[int]) -> None:
    """Writes all of it: a pipe may take less. The reader may have exited, or the disk be full."""
    for output in outputs:
        with contextlib.suppress(OSError):
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(output, rest) :]
