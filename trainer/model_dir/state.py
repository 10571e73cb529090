"""state.json: what the chief's supervisor remembers between restarts. And the lock of model_dir."""

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
    """Survives the chief's restarts, and ends with the job; but see `forget`."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)

    generation: Annotated[int, Field(ge=0, lt=2**31)] = 0
    control_port: int = 0
    """Where the chief answers /status, for other programs on this machine."""
    started: float = 0.0
    """Seconds since the epoch."""
    seconds_to_first_step: float | None = None
    phases: dict[str, float] = field(default_factory=dict)
    """Those seconds, by what they went into."""
    examples_per_second: float | None = None
    step: int = 0
    """The highest that was ever reached."""
    fruitless: int = 0
    """Generations in a row that did not exceed it. The name is that of earlier versions' files."""
    boot: str = ""
    up: float = 0.0
    """The start by the clock that nothing sets: host.uptime() of the boot with that id."""
    incarnation: str = ""
    """The chief's answer to /healthz has the same one while it is that chief which has the port."""


_STATE = TypeAdapter(State)


def lock(model_dir: str) -> TextIO:
    """Makes model_dir and takes it for this process; the lock ends with the returned file.

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
        # Some network file systems have no locks; one chief per job is then up to the user.
        pass
    return file


def load(model_dir: str, started: float) -> State:
    """What an earlier chief of this job left; a new state where it left none, or nothing that makes sense."""
    found = read_json(layout.state(model_dir))
    known = {key: value for key, value in found.items() if key in State.__dataclass_fields__}
    try:
        return _STATE.validate_json(json.dumps({"started": started, **known}))
    except ValidationError:
        return State(started=started)


def save(model_dir: str, state: State) -> None:
    write_json(layout.state(model_dir), asdict(state))


def forget(model_dir: str, generation: int = 0) -> None:
    """Ends the state with the job. After a failure the number of its last generation stays: a resume counts on."""
    path = layout.state(model_dir)
    # A volume may be read-only since an error; the job has ended all the same.
    with contextlib.suppress(OSError, UserError):
        write_json(path, {"generation": generation}) if generation else path.unlink(missing_ok=True)
