"""state.json, the state of the chief's supervisor between restarts, and the lock of model_dir."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, TextIO

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from trainer.job import environment
from trainer.job.errors import UserError
from trainer.model_dir import layout
from trainer.model_dir.files import read_json, write_json


@dataclass
class State:
    """State that survives restarts of the chief and is removed when the job ends (but see `forget`)."""

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
    fruitless: int = 0
    """Consecutive generations that did not exceed it. Earlier versions' files use the same name."""
    boot: str = ""
    up: float = 0.0
    """Start time by a clock that cannot be set: host.uptime() of the boot with that id."""
    incarnation: str = ""
    """Equal to the incarnation in /healthz as long as this chief still has the port."""


_STATE = TypeAdapter(State)


def lock(model_dir: str) -> TextIO:
    """Creates model_dir and locks it for this process, until the returned file is closed.

    Raises:
        UserError: it is not writable, or another chief uses it.
    """
    try:
        Path(model_dir).mkdir(parents=True, exist_ok=True)
        file = layout.lock(model_dir).open("a")
        file.flush()
    except OSError as error:
        host_path = os.environ.get(environment.HOST_PATH)
        way_out = f"run `chown {os.getuid()} {host_path}" if host_path else "choose another one"
        raise UserError(f"model_dir: {model_dir}: cannot be written: {error.strerror}; {way_out}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UserError(f"model_dir: {model_dir}: another job is using it; wait, or choose another one") from None
    except OSError:
        # Some network file systems have no locks; the user must then ensure that a job has one chief.
        pass
    return file


def load(model_dir: str, started: float) -> State:
    """The state that an earlier chief of this job saved; a new one if there is none, or it is not valid."""
    found = read_json(layout.state(model_dir))
    known = {key: value for key, value in found.items() if key in State.__dataclass_fields__}
    try:
        return _STATE.validate_json(json.dumps({"started": started, **known}))
    except ValidationError:
        return State(started=started)


def save(model_dir: str, state: State) -> None:
    write_json(layout.state(model_dir), asdict(state))


def forget(model_dir: str, generation: int = 0) -> None:
    """Removes the state of a job that has ended. A failed job keeps its generation number, for the next resume."""
    path = layout.state(model_dir)
    # A volume may have become read-only after an error; the job has ended nevertheless.
    with contextlib.suppress(OSError, UserError):
        write_json(path, {"generation": generation}) if generation else path.unlink(missing_ok=True)
