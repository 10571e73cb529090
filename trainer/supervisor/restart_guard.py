"""Remembers a final exit code, so that a container that Docker restarts exits at once with the same code.

Docker's `on-failure:N` restarts after any code but 0: it must restart a killed task, but it also restarts one that has
failed permanently. That one exits at once with the same code, N times within seconds, instead of waiting for its
deadlines again. Without TRAINER_RESTARTS=N nothing is written.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from trainer import host
from trainer.job import environment
from trainer.job.errors import Exit
from trainer.model_dir.files import read_json

_LENGTH = 100
RECENT_SECONDS = 30.0
"""The age up to which a failure is repeated at once. Docker waits 0.1, 0.2, 0.4, ... seconds; a start takes one, or
some on a busy machine."""


def repeat_failure(log: Path) -> Exit | None:
    """The code to exit with at once if this start follows a permanent failure; None otherwise."""
    path = _path(log)
    kept = read_json(path)
    code = next((each for each in Exit if each is not Exit.OK and each == kept.get("code")), None)
    when, left = kept.get("time"), kept.get("left")
    recent = isinstance(when, float) and 0 <= host.uptime() - when <= RECENT_SECONDS
    if code and recent and isinstance(when, float) and isinstance(left, int) and left > 0:
        _write(path, {"code": int(code), "time": when, "left": left - 1})
        return code
    if _restarts(log):
        _write(path, {"code": int(Exit.OK), "time": 0.0, "left": 0})  # takes the room that it may need later
    else:
        path.unlink(missing_ok=True)
    return None


def remember(log: Path, code: Exit) -> None:
    if code is Exit.OK:
        with contextlib.suppress(OSError):
            _path(log).unlink(missing_ok=True)
    elif (restarts := _restarts(log)) and not code.retryable:
        _write(_path(log), {"code": int(code), "time": host.uptime(), "left": restarts})


def _restarts(log: Path) -> int:
    return 0 if log == Path(os.devnull) else int(os.environ.get(environment.RESTARTS) or 0)


def _write(path: Path, value: dict[str, float]) -> None:
    # Of constant length and in place, so that it can be written to a full disk, which may be why the task failed.
    # Without this file each restart really runs the task.
    with contextlib.suppress(OSError), path.open("r+" if path.exists() else "w") as file:
        file.write(json.dumps(value).ljust(_LENGTH))
        file.truncate()


def _path(log: Path) -> Path:
    return log.with_suffix(".end.json")
