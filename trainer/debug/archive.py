"""The archive of `trainer debug`: a zip file, without secrets, that only its owner may read."""

from __future__ import annotations

import json
import os
import re
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from trainer.debug.ends import Ends
from trainer.debug.evidence import Log
from trainer.debug.redaction import Redactor
from trainer.job.errors import TrainerError, UserError

_UNUSUAL = re.compile(r"[^A-Za-z0-9._/-]+")
_NOT_PLAIN = re.compile(r"[^\t\n\x20-\x7e]")


class Entry(NamedTuple):
    """A file of the archive."""

    path: str
    size: int
    note: str = ""
    """Why it is not there, or what was left out."""


class Archive:
    """Takes the parts of the archive, without their secrets. A missing part becomes a file with the reason."""

    def __init__(self, target: zipfile.ZipFile, folder: str, redactor: Redactor) -> None:
        self._target, self._folder, self.redactor = target, folder, redactor
        self.entries: list[Entry] = []

    def clean(self, text: str) -> str:
        """A text without secrets, and without what a terminal would obey."""
        return printable(self.redactor.text(text))

    def text(self, path: str, text: str, note: str = "") -> str:
        """Adds a text; returns it as it is in the archive."""
        return self.page(path, self.clean(text), note)

    def page(self, path: str, text: str, note: str = "") -> str:
        """Adds a text that has no secrets."""
        path = self._free(_safe(path))
        content = text.encode(errors="replace")
        info = zipfile.ZipInfo(f"{self._folder}/{path}", time.localtime()[:6])
        info.external_attr, info.compress_type = 0o600 << 16, zipfile.ZIP_DEFLATED
        self._target.writestr(info, content)
        self.entries.append(Entry(path, len(content), note))
        return text

    def document(self, path: str, found: object) -> None:
        """Adds a JSON value."""
        hidden = json.dumps(self.redactor.document(found), indent=2, default=str)
        self.page(path, printable(hidden))

    def log(self, path: str, ends: Ends, task: str = "") -> Log:
        """Adds a log, or its beginning and end."""
        head, tail = (each.decode(errors="replace") for each in ends[:2])
        gap = f"\n[ trainer debug: left out here: {ends.left_out} ]\n\n" if ends.left_out else ""
        note = f"without {ends.left_out}" if ends.left_out else ""
        text = self.text(path, f"{head}{gap}{tail}", note)
        return Log(self.entries[-1].path, text, task)

    def missing(self, path: str, why: str) -> None:
        """Notes why a part cannot be had."""
        why = " ".join(self.clean(why).split())
        self.page(path if path.endswith(".txt") else f"{path}.txt", f"{why}\n", f"not available: {why}")

    @contextmanager
    def part(self, path: str) -> Iterator[None]:
        """Notes an error in a part, so that the others are collected nevertheless."""
        try:
            yield
        except Exception as error:
            text = str(error) if isinstance(error, (TrainerError, OSError)) else f"{type(error).__name__}: {error}"
            self.missing(path, text or "no answer in time")

    def _free(self, path: str) -> str:
        """The path, or a similar one if it is taken."""
        taken = {entry.path for entry in self.entries}
        stem, dot, end = path.rpartition(".")
        return next(each for n in range(1, 9999) if (each := path if n == 1 else f"{stem}-{n}{dot}{end}") not in taken)


def _safe(path: str) -> str:
    """A path below the archive's folder, of plain characters."""
    return "/".join(part for part in _UNUSUAL.sub("-", path).split("/") if part not in ("", ".", ".."))


def printable(text: str) -> str:
    """A text without characters that a terminal obeys or that hide others; lines end with a newline alone."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _NOT_PLAIN.sub(lambda match: match[0] if match[0].isprintable() else _escaped(match[0]), text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def write(path: Path, folder: str, redactor: Redactor, fill: Callable[[Archive], None]) -> int:
    """Writes an archive, whole or not at all; returns its size in bytes.

    Raises:
        UserError: it cannot be written.
    """
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as target:
            fill(Archive(target, folder, redactor))
        temporary.replace(path)
        return path.stat().st_size
    except OSError as error:
        raise UserError(f"archive: {path}: cannot be written: {error.strerror}; choose another file") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
