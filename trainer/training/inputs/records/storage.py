"""Files of this machine, and those that TensorFlow reads from elsewhere (gs://)."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from trainer.job.errors import UserError
from trainer.training.inputs.records.scan import Bytes


class Stat(NamedTuple):
    """What changes when a file changes."""

    size: int
    modified: int
    """Time of the last change, in nanoseconds."""


_FIXES = (
    (r"HTTP response code 404", "check the names of bucket and file"),
    (r"HTTP response code 40[137]",
     "give the tasks credentials that may read it (GOOGLE_APPLICATION_CREDENTIALS), or make it public"),
    (r"libcurl code", "check that this task has a way to it, such as a proxy in HTTPS_PROXY, or kubernetes.egress"),
)  # fmt: skip


class _Local:
    def __init__(self, path: str, on_read: Callable[[int], None]) -> None:
        self._file, self._on_read = os.open(path, os.O_RDONLY), on_read

    def read(self, at: int, count: int) -> bytes:
        data = os.pread(self._file, count, at)
        self._on_read(len(data))
        return data

    def close(self) -> None:
        os.close(self._file)


class _Remote:
    def __init__(self, url: str, on_read: Callable[[int], None]) -> None:
        import tensorflow as tf

        self._file, self._on_read = tf.io.gfile.GFile(url, "rb"), on_read

    def read(self, at: int, count: int) -> bytes:
        self._file.seek(at)
        data: bytes = self._file.read(count)
        self._on_read(len(data))
        return data

    def close(self) -> None:
        self._file.close()


def is_remote(name: str) -> bool:
    return "://" in name


@contextlib.contextmanager
def opened(name: str, on_read: Callable[[int], None] = lambda _: None) -> Iterator[Bytes]:
    """A file to read; `on_read` is called with the number of bytes after each read.

    Raises:
        UserError: it cannot be read.
    """
    with _reading(name), contextlib.closing((_Remote if is_remote(name) else _Local)(name, on_read)) as file:
        yield file


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror}") from None
    except Exception as error:
        # Else an error of a bucket (tf.errors.UnavailableError) would be taken for a lost task.
        if not is_remote(name) or not (message := getattr(error, "message", "")):
            raise
        raise UserError(f"{name}: cannot be read: {_reason(message)}") from None


def _reason(message: str) -> str:
    """What the bucket answered, and the fix (curl_http_request.cc writes these messages)."""
    answer = re.search(r'"message": "([^"]+)"', message)
    reason = answer[1].rstrip(".") if answer else " ".join(message.split())[:200]
    fix = next((fix for pattern, fix in _FIXES if re.search(pattern, message)), None)
    return f"{reason}; {fix}" if fix else reason


def tail(name: str, size: int, count: int) -> bytes:
    """The last bytes of a file."""
    with opened(name) as file:
        return file.read(max(0, size - count), count)


def stat(name: str) -> Stat:
    """
    Raises:
        UserError: there is no such file.
    """
    with _reading(name):
        if is_remote(name):
            import tensorflow as tf

            status = tf.io.gfile.stat(name)
            return Stat(status.length, status.mtime_nsec)
        here = Path(name).stat()
        if not S_ISREG(here.st_mode):
            raise UserError(f"{name}: is not a file")  # opening a pipe would wait
        return Stat(here.st_size, here.st_mtime_ns)


def matching(pattern: str, folder: Path) -> list[str]:
    """The files that match a pattern, by name.

    Raises:
        UserError: there are none, or TensorFlow cannot read them.
    """
    if is_remote(pattern):
        return _remote(pattern)
    path = folder.absolute() / Path(pattern).expanduser()
    names = sorted(name for name in glob.glob(_literal(path), recursive=True) if not os.path.isdir(name))  # noqa: PTH112, PTH207
    if not names:
        raise UserError(f"trainer.files({pattern!r}): nothing matches; {_contents(path.parent)}")
    if odd := next((name for name in names if not _is_utf_8(name)), None):
        raise UserError(f"trainer.files({pattern!r}): {odd!r}: its name is not UTF-8; rename it")
    return names


def _literal(path: Path) -> str:
    """The pattern, in which the part that exists as it stands matches itself alone: names may have brackets."""
    there, rest = Path(path.anchor), list(path.parts[1:])
    while rest and os.path.lexists(there / rest[0]):
        there /= rest.pop(0)
    return str(Path(glob.escape(str(there)), *rest))


def _is_utf_8(name: str) -> bool:
    return name.isascii() or name.encode(errors="replace").decode() == name


def _contents(place: Path) -> str:
    while glob.has_magic(str(place)) and not place.is_dir():
        place = place.parent
    if not place.is_dir():
        return f"there is no folder {place}"
    try:
        names = sorted(each.name for each in place.iterdir())
    except OSError as error:
        return f"{place} cannot be listed: {error.strerror}"
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"{place} has {shown}" if names else f"{place} is empty"


def _remote(pattern: str) -> list[str]:
    scheme = pattern.partition("://")[0]
    if scheme != "gs":
        raise UserError(
            f"trainer.files({pattern!r}): TensorFlow reads files and gs://, not {scheme}://; mount the bucket as a "
            "folder (a CSI volume, s3fs), or copy the files, and name them in the spec's `data`"
        )
    import tensorflow as tf

    try:
        names = sorted(tf.io.gfile.glob(pattern))
    except tf.errors.OpError as error:
        raise UserError(f"trainer.files({pattern!r}): cannot be listed: {_reason(error.message)}") from None
    if not names:
        raise UserError(f"trainer.files({pattern!r}): nothing matches")
    return names
