"""Keeps what a job on this machine has printed in model_dir/logs/output.log, for `trainer debug`."""

from __future__ import annotations

import contextlib
import os
import re
from datetime import datetime, timezone

from trainer import __version__
from trainer.model_dir import layout
from trainer.targets.local.view import Show

NAME = "output.log"
STARTS = "local       | started by trainer "
ENDED = re.compile(r"ended with exit code (\d+)(?:: (.*))?")
MOST_BYTES = 16 << 20
"""A longer file becomes output.1.log, in place of the one before."""


class Output:
    """The file. A disk that is full, or a folder that cannot be written, is for the job's own tasks to report."""

    def __init__(self, model_dir: str) -> None:
        self._path = layout.logs(model_dir) / NAME
        self._file = -1

    def line(self, source: str, text: str) -> None:
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with contextlib.suppress(OSError):
            if self._file < 0:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            os.write(self._file, "".join(f"{now} {source:<11} | {each}\n" for each in text.split("\n")).encode())
            if os.lseek(self._file, 0, os.SEEK_END) > MOST_BYTES:
                self._path.replace(self._path.with_suffix(".1.log"))
                self.close()

    def also(self, show: Show) -> Show:
        """A function that keeps each line, and shows it."""

        def both(source: str, text: str, error: bool = False) -> None:
            self.line(source, text)
            show(source, text, error)

        return both

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def started() -> str:
    """The first line of a job in its output."""
    return f"started by trainer {__version__}"


def ended(code: int, text: str) -> str:
    """The last line."""
    return f"ended with exit code {code}" + (f": {text}" if text else "")
