"""lease.json: which chief may write to model_dir.

The lock of model_dir (state.py) shows that a chief's process exists, on this machine or, where the file system has
locks, on any. It cannot tell a chief that works from one on a node that nobody reaches, whose place another has to
take. The lease belongs to the last chief that took it: the one before finds that out before it writes, and ends.

A chief that takes the lease replaces the file, later it only writes into its own: so it cannot overwrite the lease of a
successor. If the file is missing, its chief writes it again: a program may empty its model_dir.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from trainer import clocks
from trainer.job import environment
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.model_dir import disk, layout
from trainer.model_dir.files import json_object, read_json, typed, write_json

RENEW_SECONDS = 2.0
"""The chief renews its lease this often."""
FREE_SECONDS = 3 * RENEW_SECONDS
"""A chief that has not renewed its lease for this long no longer runs."""
RELEASE_SECONDS = 5.0
"""Time for a chief that was asked to stop to release its lease, after deadlines.stop."""
LEASE_POLL_SECONDS = 0.2
"""Seconds between two looks at another chief's lease, while this one waits whether that is renewed."""


@dataclass
class Lease:
    number: int = 0
    """A number that increases with each chief; workers refuse the replies of one with a lower number."""
    incarnation: str = ""
    run: str = ""
    """The run of the job (TRAINER_RUN)."""
    boot: str = ""
    """The machine's boot id, which identifies the machine and its last start."""
    leaving: bool = False
    """Whether the chief was asked to stop: until the lease is released, it may still save."""
    released: bool = False


@cache
def _adapter() -> TypeAdapter[Lease]:
    return TypeAdapter(Lease)


def read(model_dir: str) -> Lease:
    """The lease; an empty one if it is missing or damaged, or cannot be read now."""
    return _lease(read_json(layout.lease(model_dir)))


def _lease(document: dict[str, object]) -> Lease:
    try:
        return typed(_adapter(), document, newest=0)
    except ValueError:
        return Lease()


def belongs_to(model_dir: str, run: str) -> bool:
    """Whether the last chief was one of this run."""
    return _is_of(read(model_dir), run)


def _is_of(lease: Lease, run: str) -> bool:
    return bool(run) and lease.run == run


def take(model_dir: str, incarnation: str, run: str, boot: str) -> Lease:
    """Takes the lease: at once from a chief of the same run, or of this machine, whose lock is free.

    Raises:
        UserError: a chief of another run, on another machine, renews it; or model_dir is not writable.
        TrainerError: Exit.REPLACED, if another chief has taken it at the same time.
    """
    last = read(model_dir)
    held = last.incarnation and not last.released
    if held and last.boot != boot and not _is_of(last, run):
        _wait_until_free(model_dir)
    # The time, so that the number increases after a program has emptied model_dir too.
    mine = Lease(max(last.number + 1, int(clocks.wall() * 1e6)), incarnation, run, boot)
    write_json(layout.lease(model_dir), asdict(mine), sync=True)  # no two chiefs have one number
    require(model_dir, incarnation)
    return mine


def _wait_until_free(model_dir: str) -> None:
    renewals = _Renewals(model_dir)
    while renewals.silence() < FREE_SECONDS:
        clocks.pause(LEASE_POLL_SECONDS)
        if renewals.new():
            raise UserError(
                f"model_dir: {model_dir}: another job is using it, on another machine; wait, or choose another one"
            )


class _Renewals:
    """Renewals of another chief's lease, by the clock of this machine: the clocks of two may differ."""

    def __init__(self, model_dir: str) -> None:
        self._path = layout.lease(model_dir)
        self._last, self._seen = disk.modified(self._path), clocks.monotonic()

    def new(self) -> bool:
        """Whether it was renewed since the last look."""
        before, self._last = self._last, disk.modified(self._path)
        if self._last == before:
            return False
        self._seen = clocks.monotonic()
        return True

    def silence(self) -> float:
        return clocks.monotonic() - self._seen


class Predecessor:
    """The chief of the same run that has the lease, and was perhaps asked to stop and still saves."""

    def __init__(self, model_dir: str, run: str) -> None:
        self._model_dir, self._run, self._renewals = model_dir, run, _Renewals(model_dir)

    def saves(self) -> bool:
        """Whether it was asked to stop, and still works."""
        self._renewals.new()
        last = read(self._model_dir)
        leaving = _is_of(last, self._run) and last.leaving and not last.released
        return leaving and self._renewals.silence() < FREE_SECONDS


def is_held(model_dir: str, incarnation: str, number: int = 0) -> bool:
    """Whether no other chief has taken the lease. The file is read anew, which a network file system needs to show a
    change. If it cannot be read now, neither can it be written.

    Args:
        number: of this chief's lease. An earlier chief that has not noticed its successor may have written the file
            again after a program had emptied model_dir: the higher number decides.
    """
    lease = read(model_dir)
    return lease.incarnation in ("", incarnation) or lease.number < number


def renew(model_dir: str, mine: Lease) -> bool:
    """Shows other machines that this chief works, and whether it is leaving; writes the file again if it is missing.
    Returns whether this chief still has the lease."""
    if not is_held(model_dir, mine.incarnation, mine.number):
        return False
    with contextlib.suppress(OSError):
        _write(layout.lease(model_dir), mine)
    return True


def _write(path: Path, mine: Lease) -> None:
    """Writes into the file of this chief, or into a new one."""
    text = json.dumps(asdict(mine), indent=2).encode()

    def renewed(before: bytes) -> bytes | None:
        last = _lease(json_object(before))
        if last == mine:
            return before
        ours = last.incarnation in ("", mine.incarnation) or last.number < mine.number
        return text.ljust(len(before) - 1) + b"\n" if ours else None

    try:
        disk.edit(path, renewed)
    except FileNotFoundError:
        disk.make_folder(path.parent)  # an error without model_dir, which the program is then about to make
        disk.create(path, text + b"\n")


def holder(model_dir: str, incarnation: str) -> str:
    """The value of TRAINER_LEASE for the chief's child."""
    return f"{incarnation} {model_dir}"


def require_own() -> None:
    """Calls `require` for the chief of this child, if it has one."""
    incarnation, _, model_dir = os.environ.get(environment.LEASE, "").partition(" ")
    if incarnation:
        require(model_dir, incarnation)


def require(model_dir: str, incarnation: str, number: int = 0) -> None:
    """Call it before a write.

    Raises:
        TrainerError: Exit.REPLACED.
    """
    if not is_held(model_dir, incarnation, number):
        raise TrainerError(
            f"model_dir: {model_dir}: another chief has taken this one's place: this one writes nothing more and ends",
            Exit.REPLACED,
        )


def release(model_dir: str, mine: Lease) -> None:
    """Gives the lease back at the end of the job. Its number is kept."""
    mine.released = True
    renew(model_dir, mine)
