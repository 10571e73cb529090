"""Reads of files that somebody else may have made: of a folder of another user, or one that was unpacked or copied.

Such a folder may have a pipe in a file's place, which never ends, a device, a link to any file of the reader's, or a
file that is longer than the memory.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from trainer.model_dir.layout import OWN

LONGEST_DOCUMENT = 32 << 20
"""The most bytes of a document, such as JSON, that is read as a whole."""


def regular(path: str, flags: int) -> int:
    """Opens a regular file, and nothing else: for the parameter `opener` of open().

    Raises:
        OSError: it is none; links are not followed, nor is one in place of the folder of trainer's own files.
    """
    folder = Path(path).parent
    if folder.name == OWN and folder.is_symlink():
        raise OSError(errno.ELOOP, "is a link, which is not followed", str(folder))
    # O_NONBLOCK: the open of a pipe does not wait for its other side.
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a link, which is not followed", path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no regular file", path)
    return descriptor


def document(path: Path, most: int = LONGEST_DOCUMENT) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: it is none, or is longer.
    """
    with open(path, "rb", opener=regular) as file:
        body = file.read(most + 1)
    if len(body) > most:
        raise OSError(errno.EFBIG, f"is longer than {most >> 20} MiB", str(path))
    return body


def end(path: Path, most: int) -> bytes:
    """The last lines of a regular file, however long it is; the line in which they begin is left out.

    Raises:
        OSError: it is none.
    """
    with open(path, "rb", opener=regular) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        body = file.read(most)
    return body if size <= most else body.partition(b"\n")[2]


def is_inside(path: Path, folder: str | Path) -> bool:
    """Whether a path is in a folder once its links are followed."""
    try:
        return path.resolve().is_relative_to(Path(folder).resolve())
    except (OSError, RuntimeError):  # a circle of links
        return False
