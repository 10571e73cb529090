"""What a child writes: copied as it comes, into a log of limited size too, and its end kept, in which the reason of a
program's end is found."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from trainer.model_dir import rotation

TAIL_BYTES = 1 << 16
"""How much of an output's end is kept."""
STDOUT, STDERR = 1, 2


class Output:
    """A pipe for a child's stdout or stderr. A thread copies it to this process's own, to a log, or to both: writing
    may block, and the supervisor must not."""

    def __init__(
        self, descriptor: int | None, *, log: Path | None = None, take: Callable[[bytes], None] = lambda _: None
    ) -> None:
        """
        Args:
            descriptor: STDOUT or STDERR, or None for a log alone.
            log: a file that gets it too, and whose size is limited (rotation.py).
            take: called with each piece, in the thread.
        """
        self._descriptor, self._log, self._take = descriptor, _Log(log), take
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
        self._log.close()

    def wait(self, seconds: float) -> None:
        """Waits until all was copied. A process that the child left behind may keep the pipe open."""
        self._thread.join(seconds)

    @property
    def tail(self) -> str:
        return self._tail.decode(errors="replace")

    def _copy(self) -> None:
        try:
            while chunk := os.read(self._pipe, 1 << 16):
                self._tail = (self._tail + chunk)[-TAIL_BYTES:]
                self._write(chunk)
                self._take(chunk)
            if self._descriptor == STDERR and self._tail and not self._tail.endswith(b"\n"):
                self._write(b"\n")  # the supervisor's next line is read by the launcher
        finally:
            os.close(self._pipe)
            self._log.close()

    def _write(self, chunk: bytes) -> None:
        if self._descriptor is not None:
            _write(chunk, self._descriptor)
        self._log.write(chunk)


class _Log:
    """A log that several children of a task may write to. Without a path it is none."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._descriptor = path, -1
        self._open()

    def write(self, chunk: bytes) -> None:
        if self._path is None or self._descriptor < 0:
            return
        with contextlib.suppress(OSError):
            if rotation.set_aside_if_full(self._path, self._descriptor):
                self.close()
                self._open()
        _write(chunk, self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)


def _write(chunk: bytes, output: int) -> None:
    """Writes all of it: a pipe may take less. The reader may have exited, or the disk be full."""
    with contextlib.suppress(OSError):
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(output, rest) :]
