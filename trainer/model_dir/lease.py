"""lease.json: which chief may write to model_dir.

The lock of model_dir (state.py) shows that a chief's process exists, on this machine or, where the file system has
locks, on any. It cannot tell a chief that works from one on a node that nobody reaches, whose place another has to
take. The lease belongs to the last chief that took it: the one before finds that out before it writes, and ends.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import asdict, dataclass
from functools import cache

from pydantic import TypeAdapter

from trainer.job import environment
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.model_dir import layout
from trainer.model_dir.files import read_json, typed, write_json

RENEW_SECONDS = 2.0
FREE_SECONDS = 3 * RENEW_SECONDS
"""A chief of another run, on another machine, that has not renewed its lease for so long no longer runs."""


@dataclass
class Lease:
    number: int = 0
    """Increases with each chief; workers refuse the replies of one with a lower number."""
    incarnation: str = ""
    run: str = ""
    """The run of the job (TRAINER_RUN)."""
    boot: str = ""
    """Identifies the machine, and its start."""


@cache
def _adapter() -> TypeAdapter[Lease]:
    return TypeAdapter(Lease)


def read(model_dir: str) -> Lease:
    try:
        return typed(_adapter(), read_json(layout.lease(model_dir)), newest=0)
    except ValueError:
        return Lease()


def belongs_to(model_dir: str, run: str) -> bool:
    """Whether the last chief was one of this run."""
    return bool(run) and read(model_dir).run == run


def take(model_dir: str, incarnation: str, run: str, boot: str) -> Lease:
    """Takes the lease: at once from a chief of the same run, or of this machine, whose lock is free.

    Raises:
        UserError: a chief of another run, on another machine, renews it; or model_dir is not writable.
    """
    last = read(model_dir)
    if last.incarnation and last.boot != boot and not belongs_to(model_dir, run):
        _wait_until_free(model_dir)
    mine = Lease(last.number + 1, incarnation, run, boot)
    write_json(layout.lease(model_dir), asdict(mine))
    return mine


def _wait_until_free(model_dir: str) -> None:
    path, end = layout.lease(model_dir), time.monotonic() + FREE_SECONDS
    with contextlib.suppress(FileNotFoundError):
        renewed = path.stat().st_mtime_ns
        while time.monotonic() < end:
            time.sleep(0.2)
            if path.stat().st_mtime_ns != renewed:
                raise UserError(
                    f"model_dir: {model_dir}: another job is using it, on another machine; wait, or choose another one"
                )


def is_held(model_dir: str, incarnation: str) -> bool:
    """Whether this is still the last chief. The file is read anew, which a network file system needs to show a change.
    If it cannot be read now, neither can it be written."""
    path = layout.lease(model_dir)
    try:
        path.open("rb").close()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return read(model_dir).incarnation == incarnation


def renew(model_dir: str, incarnation: str) -> bool:
    """Shows other machines that this chief works; returns whether it still has the lease. It changes no contents, so
    it cannot take the lease back."""
    if not is_held(model_dir, incarnation):
        return False
    with contextlib.suppress(OSError):
        os.utime(layout.lease(model_dir))
    return True


def holder(model_dir: str, incarnation: str) -> str:
    """For the environment of the chief's child."""
    return f"{incarnation} {model_dir}"


def require_own() -> None:
    """Calls `require` for the chief of this child, if it has one."""
    incarnation, _, model_dir = os.environ.get(environment.LEASE, "").partition(" ")
    if incarnation:
        require(model_dir, incarnation)


def require(model_dir: str, incarnation: str) -> None:
    """To be called before a write.

    Raises:
        TrainerError: Exit.REPLACED.
    """
    if not is_held(model_dir, incarnation):
        raise TrainerError(
            f"model_dir: {model_dir}: another chief has taken this one's place: this one writes nothing more and ends",
            Exit.REPLACED,
        )


def release(model_dir: str, incarnation: str) -> None:
    """Gives the lease back at the end of the job. Its number is kept."""
    with contextlib.suppress(OSError, UserError):
        if is_held(model_dir, incarnation):
            write_json(layout.lease(model_dir), asdict(Lease(read(model_dir).number)))
