"""The secret that the tasks of a job share to sign their reports."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterable, MutableMapping
from pathlib import Path
from typing import BinaryIO

from trainer.job import environment
from trainer.job.errors import UserError

FILE = "secret"
"""Name of the secret's file in TRAINER_SECRET_FOLDER, and its key in Kubernetes' Secret."""


_HELD: list[BinaryIO] = []


def new() -> str:
    return secrets.token_urlsafe(32)


def take(environ: MutableMapping[str, str] = os.environ) -> bytes:
    """Returns the task's secret and removes it from the environment, so no child inherits it; empty if there is none.

    Raises:
        UserError: the secret is empty, or its file cannot be read.
    """
    value, file = environ.pop(environment.SECRET, None), environ.pop(environment.SECRET_FILE, None)
    folder = environ.pop(environment.SECRET_FOLDER, None)
    if value is None and file is None and folder and (path := Path(folder) / FILE).exists():
        file = str(path)
    if value is None and file is None:
        return b""
    try:
        secret = (os.fsencode(value) if value is not None else _held(Path(file or ""))).strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"{environment.SECRET_FILE}: {file!r}: cannot be read: {why}") from None
    if not secret:
        name = environment.SECRET if value is not None else f"{environment.SECRET_FILE}: {file!r}"
        raise UserError(f"{name}: is empty; it must hold the job's secret, the same for all of its tasks")
    return secret


def _held(path: Path) -> bytes:
    """The content of the secret's file, which this process shows to be in use until it ends: see `keep`."""
    file = path.open("rb")
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    _HELD.append(file)
    return file.read()


def keep(path: Path, owner: int | None = None, folders: Iterable[Path] = ()) -> None:
    """Writes a new secret into a file that only its owner can read, unless a task uses the one that is there: each run
    of a job has its own.

    Args:
        owner: the user and group that get the file, its folder and `folders`; default: they stay as they are.

    Raises:
        UserError: the folder cannot be written, or an owner cannot be set.
    """
    if owner is not None:
        # Root may read and write only what is its own: containers have no CAP_DAC_OVERRIDE.
        _give([path.parent], os.getuid())
        _give([path] if path.exists() else [], os.getuid())
    _write(path)
    if owner is not None:
        _give([path, path.parent, *folders], owner)


def _give(paths: Iterable[Path], owner: int) -> None:
    for each in paths:
        try:
            os.chown(each, owner, owner)
        except OSError as error:
            raise UserError(f"{each}: cannot be given to user {owner}: {error.strerror}") from None


def _in_use(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # also where there are no locks
            return True
    return False


def _write(path: Path) -> None:
    try:
        if path.exists() and path.stat().st_size and _in_use(path):
            return
        # Atomic: tasks that start meanwhile never read half a secret.
        temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o400), "w") as file:
            file.write(new())
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{path}: the job's secret cannot be written: {error.strerror}") from None
