"""state.json, the state of the chief's supervisor between restarts, and the lock of model_dir."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Annotated, TextIO

from pydantic import ConfigDict, Field, TypeAdapter

from trainer import clocks
from trainer.job import environment
from trainer.job.differences import differences
from trainer.job.errors import UserError
from trainer.model_dir import disk, layout
from trainer.model_dir.files import is_locked, read_json, typed, write_json
from trainer.model_dir.result import JobEvent
from trainer.model_dir.stacks import Stacks


@dataclass
class End:
    """The end of a job that failed or was stopped."""

    job: str
    code: int
    message: str
    run: str = ""
    """The run that ended (TRAINER_RUN)."""


@dataclass
class PaceCounters:
    """How well the job used its time."""

    useful: float = 0.0
    """Seconds in which steps were made that had not been made before."""
    wall: float = 0.0
    """Seconds in which the job ran."""
    best: int = 0
    """The highest step that was made."""
    time: float = 0.0
    """When this was counted, in seconds since the epoch."""


@dataclass
class State:
    """State that survives restarts of the chief and is removed when the job succeeds (but see `fail`)."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)

    generation: Annotated[int, Field(ge=0, lt=2**31)] = 0
    control_port: int = 0
    """Port on which the chief serves /status to other programs on this machine."""
    started: float = 0.0
    """Seconds since the epoch."""
    seconds_to_first_step: float | None = None
    phases: dict[str, float] = field(default_factory=dict)
    """Those seconds, by phase."""
    examples_per_second: float | None = None
    step: int = 0
    """The highest step reached so far."""
    generations_without_progress: int = 0
    """Consecutive generations that did not exceed it."""
    files: str = ""
    """For a program: the fingerprint of its files in model_dir when the generation formed."""
    boot: str = ""
    up: float = 0.0
    """Start time by a clock that cannot be set: host.uptime() of the boot with that id."""
    incarnation: str = ""
    """Equal to the incarnation in /healthz as long as this chief still has the port."""
    launcher: int = 0
    """Process id of the program on this machine that restarts the job's tasks; 0 elsewhere."""
    pace: PaceCounters = field(default_factory=PaceCounters)
    restarts: dict[str, Annotated[int, Field(ge=0, lt=2**31)]] = field(default_factory=dict)
    """Restarts since the job was started, by the label of their cause."""
    events: list[JobEvent] = field(default_factory=list)
    """What happened, in a state that version 0.2 wrote; now it is in the journal."""
    hangs: list[Stacks] = field(default_factory=list)
    """The stacks of all tasks when the job hung, the newest."""
    end: End | None = None
    """None while the job runs."""


class InUse(UserError):
    """Another chief has the lock."""


_OF_A_FAILURE = ("generation", "control_port", "incarnation", "pace", "hangs", "end")


def lock(model_dir: str, spec: Mapping[str, object] | None = None) -> TextIO:
    """Creates model_dir and locks it for this process, until the returned file is closed.

    Args:
        spec: that of the job, as a document: the message of a refusal has where that of the other one differs.

    Raises:
        UserError: it is not writable, or another chief uses it.
    """
    try:
        layout.make_own(model_dir)
        file = disk.open_lock(layout.lock(model_dir))
    except OSError as error:
        host_path = os.environ.get(environment.HOST_PATH)
        way_out = f"run `chown {os.getuid()} {host_path}" if host_path else "choose another one"
        raise UserError(f"model_dir: {model_dir}: cannot be written: {error.strerror}; {way_out}") from None
    for pause in (0.05, 0.05, None):  # `in_use` of another program may have the lock for a moment
        if disk.take_lock(file):
            break
        if pause is None:
            file.close()
            different = difference(model_dir, spec) if spec else ""
            raise InUse(f"model_dir: {model_dir}: another job is using it{different}; wait, or choose another one")
        clocks.pause(pause)
    return file


def in_use(model_dir: str) -> bool:
    """Whether a chief has the lock, on this machine or on another one; False if that cannot be determined."""
    return is_locked(layout.lock(model_dir))


_OF_A_PLACE = ("python", "working_dir", "code")
"""Settings that `trainer local` fills in for a program."""


def difference(model_dir: str, spec: Mapping[str, object]) -> str:
    """Where a spec differs from that of the job in model_dir, in parentheses; empty if it does not."""
    there, here = (
        {k: v for k, v in each.items() if k not in _OF_A_PLACE} for each in (read_json(layout.spec(model_dir)), spec)
    )
    different = differences(there, here) if there else []
    return f" ({'; '.join(different)})" if different else ""


@cache
def _adapter() -> TypeAdapter[State]:
    return TypeAdapter(State)


def load(model_dir: str, started: float) -> State:
    """The state that an earlier chief of this job saved; a new one if there is none, or it is not valid."""
    kept = read_json(layout.state(model_dir))
    known = {key: value for key, value in kept.items() if key in State.__dataclass_fields__}
    try:
        return typed(_adapter(), {"started": started, **known}, newest=0) if known else State(started=started)
    except ValueError:
        return State(started=started)


def save(model_dir: str, state: State, *, sync: bool = False) -> None:
    """
    Args:
        sync: whether it must be there after a loss of power.
    """
    write_json(layout.state(model_dir), asdict(state), sync=sync)


def forget(model_dir: str) -> None:
    """Removes the state of a job that has succeeded."""
    # A volume may have become read-only after an error; the job has ended nevertheless.
    disk.remove(layout.state(model_dir))


def fail(model_dir: str, state: State) -> bool:
    """Keeps only what a failed job needs: its generation number for the next start, and the rest for its status.
    Returns whether the disk has taken it."""
    path, known = layout.state(model_dir), asdict(state)
    kept = {name: known[name] for name in _OF_A_FAILURE}
    try:
        write_json(path, kept)
    except (OSError, UserError):
        # On a full disk: the blocks of the state before the failure, with which the next start would count on from it,
        # have room for this one. An empty file still shows that a run followed the result.
        try:
            disk.overwrite(path, json.dumps(kept).encode())
        except OSError:
            return False
    return True
