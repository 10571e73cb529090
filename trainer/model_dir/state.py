"""What the chief's supervisor keeps on the volume: its state between restarts, and the result."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TextIO

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from trainer.job import environment
from trainer.job.errors import UserError
from trainer.job.names import TaskType
from trainer.job.spec import JobSpec
from trainer.model_dir import compatibility


@dataclass
class State:
    """Survives the chief's restarts, and ends with the job."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)

    generation: Annotated[int, Field(ge=0, lt=2**31)] = 0
    control_port: int = 0
    """Where the chief answers /status; tells other programs on this machine."""
    started: float = 0.0
    """Seconds since the epoch."""
    seconds_to_first_step: float | None = None
    phases: dict[str, float] = field(default_factory=dict)
    """Those seconds, by what they went into."""
    examples_per_second: float | None = None
    step: int = 0
    """The highest that was ever reached."""
    fruitless: int = 0
    """Generations in a row that did not get past it."""
    boot: str = ""
    up: float = 0.0
    """The start by the clock that nothing sets: platform.uptime() of the boot with that id."""


_STATE = TypeAdapter(State)


def lock(model_dir: str) -> TextIO:
    """Makes model_dir and takes it for this process; the lock ends with the returned file.

    Raises:
        UserError: it is not writable, or another chief uses it.
    """
    path = Path(model_dir)
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = (path / ".lock").open("a")
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
        # Some network file systems have no locks; one chief per job is then up to whoever runs it.
        pass
    return file


def load(model_dir: str, started: float) -> State:
    """What an earlier chief of this job left; a new state where it left none, or nothing that makes sense."""
    found = read_json(Path(model_dir) / "state.json")
    known = {key: value for key, value in found.items() if key in State.__dataclass_fields__}
    try:
        return _STATE.validate_json(json.dumps({"started": started, **known}))
    except ValidationError:
        return State(started=started)


def save(model_dir: str, state: State) -> None:
    write_json(Path(model_dir) / "state.json", asdict(state))


def forget(model_dir: str) -> None:
    with contextlib.suppress(OSError):  # a volume that is read-only since an error; the job has ended all the same
        (Path(model_dir) / "state.json").unlink(missing_ok=True)


def result_path(model_dir: str) -> Path:
    return Path(model_dir) / "result.json"


def finished(model_dir: str) -> dict[str, Any]:
    """The result of a job that succeeded here, whichever it was; empty while there is none."""
    result = read_json(result_path(model_dir))
    step = result.get("steps", 0)
    makes_sense = isinstance(result.get("fits"), dict) and isinstance(step, int) and 0 <= step < 2**31
    return result if result.get("status") == "succeeded" and makes_sense else {}


def completed(spec: JobSpec, counts: dict[TaskType, int], digest: str) -> dict[str, Any]:
    """The result of this very job, whose workload has that digest, as far as this task sees model_dir; empty while
    there is none."""
    result = finished(spec.directory)
    if not result or not has_all_steps(result, spec):
        return {}
    different = compatibility.differences(result["fits"], compatibility.key(spec, counts, digest), "result")
    return {} if different else result


def has_all_steps(result: Mapping[str, Any], spec: JobSpec) -> bool:
    """Whether a result has the steps that a spec asks for; otherwise its training goes on."""
    asked = steps_asked(spec)
    return all(result["fits"].get(name) == value for name, value in asked.items()) or (
        spec.train.steps is not None and spec.train.steps == result.get("steps")
    )


def steps_asked(spec: JobSpec) -> dict[str, Any]:
    return {"train.steps": spec.train.steps, "train.epochs": spec.train.epochs}


def refuse_another_jobs(result: Mapping[str, Any], spec: JobSpec, fits: Mapping[str, Any]) -> None:
    """Looks whether a result is of a job with this compatibility key.

    Raises:
        UserError: it is that of another job; names the differences.
    """
    different = compatibility.differences(result["fits"], fits, "result")
    if different:
        raise UserError(
            f"model_dir: {spec.directory}: it holds the result of another job: {'; '.join(different)}; "
            "undo the change, or choose another model_dir"
        )


def set_warning(model_dir: str, task: str, text: str | None) -> None:
    """Puts this task's warning, which begins with its name, into the result of a job that is over, in place of the one
    that it had. The chief, who wrote the result, has told this task since, and writes it no more."""
    result = read_json(result_path(model_dir))
    if result:
        known = result.get("warnings")
        others = [each for each in known if not str(each).startswith(task)] if isinstance(known, list) else []
        write_json(result_path(model_dir), {**result, "warnings": others if text is None else [*others, text]})


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty if there is none."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Whole or not at all.

    Raises:
        UserError: the disk is full or not writable.
    """
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        temporary.write_text(json.dumps(value, indent=2) + "\n")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"model_dir: {path}: cannot be written: {error.strerror}") from None
