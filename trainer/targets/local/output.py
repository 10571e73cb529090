"""What a job on this machine has printed, with times: output.log, for `trainer debug` and `Run.logs`.
The process that writes it has locked it, so others see whether it still lives."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import BinaryIO

from trainer import __version__
from trainer.job.errors import UserError
from trainer.model_dir import layout, rotation
from trainer.model_dir.files import is_locked
from trainer.model_dir.regular import end, is_inside, regular
from trainer.targets.base import LogLine
from trainer.targets.local.view import Show

NAME = "output.log"
STARTS = "local       | started by trainer "
TASK_ENDED = re.compile(r"(\w+:\d+) ended, with exit code (-?\d+)")
ENDED = re.compile(r"ended with exit code (\d+)(?:: (.*))?")
READ_BYTES = 2 * rotation.MOST_BYTES
"""The most bytes of a file that are read at once: somebody else may have made it longer."""
LINES_POLL_SECONDS = 0.1
_FIRST = re.compile(rb"^\S+ local +\| started by trainer ", re.MULTILINE)
_LINE = re.compile(r"\S+ (\S+) +\| (.*)", re.DOTALL)


class Output:
    """The file. A disk that is full, or a folder that cannot be written, is for the job's own tasks to report."""

    def __init__(self, model_dir: str) -> None:
        self._path = layout.logs(model_dir) / NAME
        self._file = -1

    def line(self, source: str, text: str) -> None:
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with contextlib.suppress(OSError):
            if self._file < 0:
                self._open()
            os.write(self._file, "".join(f"{now} {source:<11} | {each}\n" for each in text.split("\n")).encode())
            if rotation.set_aside_if_full(self._path, self._file):
                self.close()
                self._open()

    def also(self, show: Show) -> Show:
        """A function that keeps each line, and shows it."""

        def both(source: str, text: str, error: bool = False) -> None:
            self.line(source, text)
            show(source, text, error)

        return both

    @property
    def descriptors(self) -> list[int]:
        """The open file, if there is one. A process that inherits it holds the lock too."""
        return [self._file] if self._file >= 0 else []

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = regular(str(self._path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for _ in range(3):  # `written` of another process may have the lock for a moment
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:  # some network file systems have no locks
                return


def started() -> str:
    """The first line of a job in its output."""
    return f"started by trainer {__version__}"


def task_ended(name: str, code: int) -> str:
    """A line about the end of each task, before the last one."""
    return f"{name} ended, with exit code {code}"


def ended(code: int, text: str) -> str:
    """The last line."""
    return f"ended with exit code {code}" + (f": {text}" if text else "")


def begin(model_dir: str) -> Output:
    """Writes the first line of a job that is about to start: what stands before it is of an earlier one.

    Returns:
        The file, for the job's process to inherit: it is locked without a gap from now on.

    Raises:
        UserError: it cannot be written.
    """
    path = layout.logs(model_dir) / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        open(path, "ab", opener=regular).close()
    except OSError as error:
        raise UserError(f"model_dir: {model_dir}: cannot be written: {error.strerror}; choose another one") from None
    kept = Output(model_dir)
    kept.line("local", started())
    return kept


def begun(model_dir: str) -> bool:
    """Whether a job was started there on this machine."""
    return (layout.logs(model_dir) / NAME).exists()


def written(model_dir: str) -> bool:
    """Whether a process lives that writes the output of a job; False if that cannot be determined."""
    return is_locked(layout.logs(model_dir) / NAME)


def lines(model_dir: str, more: Callable[[], bool]) -> Iterator[LogLine]:
    """The lines of the last job, and those that are added as long as `more` holds.

    Raises:
        UserError: there are none.
    """
    path = layout.logs(model_dir) / NAME
    try:
        file = _opened(path, model_dir)
    except FileNotFoundError:
        raise UserError(f"{model_dir}: no job has printed anything on this machine; run or submit it here") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        rest = _of_last_job(_earlier(path) + _last(file))
        while True:
            *whole, rest = rest.split(b"\n")
            yield from (_line(each) for each in whole if not _FIRST.match(each))
            over = not more()
            if chunk := file.read(READ_BYTES):
                rest += chunk
            elif over:
                return
            elif _was_replaced(file, path):
                file.close()
                file = _opened(path, model_dir)
            else:
                time.sleep(LINES_POLL_SECONDS)
    finally:
        file.close()


def verdict(model_dir: str) -> str:
    """Why the last job has failed, as its launcher saw it; empty if that was killed."""
    told = [line.text for line in lines(model_dir, lambda: False) if line.task == "local"]
    end = ENDED.fullmatch(told[-1]) if told else None
    return (end[2] if end else None) or ""


def _of_last_job(text: bytes) -> bytes:
    starts = [start.start() for start in _FIRST.finditer(text)]
    return text[starts[-1] :] if starts else text


def _earlier(path: Path) -> bytes:
    try:
        return end(rotation.earlier(path), READ_BYTES)
    except OSError:
        return b""


def _opened(path: Path, model_dir: str) -> BinaryIO:
    """
    Raises:
        OSError: it is no regular file in that folder.
    """
    if not is_inside(path.parent, model_dir):
        raise OSError(errno.ELOOP, "its folder is a link that leads out of model_dir")
    return open(path, "rb", opener=regular)


def _last(file: BinaryIO) -> bytes:
    """The last lines of a file, which somebody else may have made longer."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - READ_BYTES))
    return file.read(READ_BYTES)


def _was_replaced(file: BinaryIO, path: Path) -> bool:
    """Whether the file has another name now, and its own is that of the next one."""
    try:
        return not os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return False


def _line(text: bytes) -> LogLine:
    match = _LINE.fullmatch(text.decode(errors="replace"))
    return LogLine(*match.groups()) if match else LogLine("local", text.decode(errors="replace"))
