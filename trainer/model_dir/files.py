"""Atomic writes of JSON files, and reads of JSON that another version of trainer may have written."""

from __future__ import annotations

import fcntl
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from trainer import ids
from trainer.job.errors import UserError
from trainer.model_dir import disk, layout
from trainer.model_dir.regular import regular

_T = TypeVar("_T")
OWN = ids.new()
"""Suffix of the names of this process's temporary files: processes in two containers may have the same process id."""


def read_json(path: Path) -> dict[str, object]:
    """The JSON object in a file; empty if there is none, or it is too long."""
    try:
        return json_object(disk.read(path))
    except OSError:
        return {}


def json_object(text: str | bytes) -> dict[str, object]:
    """The JSON object in a text; empty if there is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def json_text(value: object) -> str:
    """JSON that every parser accepts: without NaN and infinity, which the user's figures may contain."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value))


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None


def typed(adapter: TypeAdapter[_T], document: Mapping[str, object], newest: int) -> _T:
    """Converts a JSON object to a dataclass. Unknown fields are ignored.

    Args:
        adapter: made at its first use, for that takes milliseconds of a task's start, and in the module of its class,
            where an older pydantic looks for the names in annotations.
        newest: the newest supported version of the format.

    Raises:
        ValueError: the version is newer, or a field is missing or wrong; the reason is one line.
    """
    version = document.get("version")
    if isinstance(version, int) and version > newest:
        raise ValueError(f"version: {version}: this trainer reads versions up to {newest}")
    try:
        # pydantic refuses a lone surrogate, as in a message that quotes a file name that is not UTF-8.
        text = json.dumps(document, ensure_ascii=False).encode(errors="replace")
        return adapter.validate_json(text, strict=True)
    except ValidationError as error:
        raise ValueError(first_mistake(error)) from None


def first_mistake(error: ValidationError) -> str:
    """The first error, as `path.to.field: message`."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    path = ".".join(map(str, first["loc"]))
    return f"{path}: {first['msg']}" if path else first["msg"]


def write_json(path: Path, value: Mapping[str, object], *, sync: bool = False) -> None:
    """Writes a JSON file atomically.

    Args:
        sync: whether it must be there after a loss of power.

    Raises:
        UserError: the disk is full or not writable.
    """
    write_pieces(path, [json.dumps(value, indent=2), "\n"], sync=sync)


def write_text(path: Path, text: str) -> None:
    """Writes a file atomically.

    Raises:
        UserError: the disk is full or not writable.
    """
    write_pieces(path, [text])


def write_pieces(path: Path, pieces: Iterable[str], *, sync: bool = False) -> None:
    """As write_text, for a text that need not be in memory as a whole."""
    try:
        if path.parent.name == layout.OWN:
            disk.make_folder(path.parent)  # a program may have emptied model_dir
        disk.replace(path, pieces, sync=sync)
    except OSError as error:
        raise UserError(f"model_dir: {path}: cannot be written: {error.strerror}") from None


def is_locked(path: Path) -> bool:
    """Whether a process has the lock of a file for itself, here or on another machine; False if that cannot be
    determined."""
    return _lockable(path) is False


def is_free(path: Path) -> bool:
    """Whether no process has the lock of a file, or there is no file; False if that cannot be determined."""
    return _lockable(path) is True


def _lockable(path: Path) -> bool | None:
    try:
        with open(path, "rb", opener=regular) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass
    except OSError:  # some network file systems have no locks
        return None
    return True
