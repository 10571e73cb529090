"""What supervisors do to the files of a model_dir. A simulated world has a disk of its own (tests/simulation/).

They open regular files only, see regular.py.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

from trainer import ids
from trainer.model_dir.regular import LONGEST_DOCUMENT, document, end, regular

read = document
tail = end


def replace(path: Path, pieces: Iterable[str], *, sync: bool = False) -> None:
    """Writes a file atomically, from pieces that need not be in memory together.

    Args:
        sync: whether it must be there after a loss of power.

    Raises:
        OSError: the disk is full or not writable; the file is as it was before.
    """
    temporary = path.with_name(f".tmp-{path.name}-{ids.new()}")  # threads may write the same file
    try:
        with temporary.open("w") as file:
            file.writelines(pieces)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if sync:
            _sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append(path: Path, text: bytes) -> None:
    """Appends lines, behind what a killed process may have left of a line.

    Raises:
        OSError: the disk is full or not writable. Nothing that was there before is lost, and nothing was added.
    """
    with open(path, "ab+", buffering=0, opener=regular) as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            text = text if file.read(1) == b"\n" else b"\n" + text
        if file.write(text) < len(text):  # the disk is full: the kernel takes what fits
            file.truncate(size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def edit(path: Path, change: Callable[[bytes], bytes | None]) -> None:
    """Changes a file in its place: another process that has replaced it meanwhile is not overwritten.

    Args:
        change: takes the content; returns the new one, which is not shorter, or the same if only the time of the change
            is to be shown, or None if nothing is to be changed.

    Raises:
        OSError: there is no such file, or it is not writable.
    """
    with open(path, "r+b", opener=regular) as file:
        before = file.read(LONGEST_DOCUMENT)
        if (after := change(before)) == before:
            os.utime(file.fileno())
        elif after is not None:
            file.seek(0)
            file.write(after)


def overwrite(path: Path, body: bytes) -> None:
    """Writes into the blocks that a file has, as a full disk allows; it is empty if they are too few.

    Raises:
        OSError: there is no such file, or it is not writable.
    """
    with open(path, "r+b", buffering=0, opener=regular) as file:
        written = 0
        with contextlib.suppress(OSError):
            written = file.write(body)
        file.truncate(written if written == len(body) else 0)


def create(path: Path, body: bytes) -> None:
    """
    Raises:
        OSError: the file is there already, or cannot be written.
    """
    with path.open("xb") as file:
        file.write(body)


def modified(path: Path) -> int:
    """When a file was changed, in nanoseconds by the clock of the disk; 0 if it cannot be read."""
    # A network file system shows a change only to a process that opens the file anew.
    with contextlib.suppress(OSError), open(path, "rb", opener=regular) as file:
        return os.fstat(file.fileno()).st_mtime_ns
    return 0


def size(path: Path) -> int:
    """Bytes of a file; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def move(path: Path, to: Path) -> None:
    """
    Raises:
        OSError: it cannot be moved.
    """
    path.replace(to)


def remove(path: Path) -> None:
    """Removes a file, if there is one and it can be removed."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def make_folder(path: Path, *, parents: bool = False) -> None:
    """
    Raises:
        OSError: it cannot be made, for example without its parent.
    """
    path.mkdir(parents=parents, exist_ok=True)


def is_folder(path: Path) -> bool:
    return path.is_dir()


def names(folder: Path) -> list[str]:
    """The names of what is in a folder; none if there is no such folder."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def open_lock(path: Path, *, make: bool = True) -> TextIO:
    """Opens the file of a lock, which `take_lock` then takes, until it is closed.

    Raises:
        OSError: it cannot be opened.
    """
    file = open(path, "a" if make else "r", opener=regular)  # noqa: SIM115 (it is kept)
    file.flush()
    return file


def take_lock(file: TextIO) -> bool:
    """Takes a lock for this process; returns False if another one has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # some network file systems have no locks; the user must then ensure that a job has one chief
    return True
