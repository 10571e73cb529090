"""How this task ended before, for a container that is started again by who cannot tell why it ended.

Docker's `on-failure:N` looks at nothing but zero: a task that was killed has to come back, but one that failed for
good, and would fail again, comes back as well. It then ends at once with the same code, N times within seconds,
and not after another round of deadlines. Only where TRAINER_RESTARTS says N; elsewhere nothing is written.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from trainer.job.errors import Exit
from trainer.runtime import job_state

RESTARTS_VARIABLE = "TRAINER_RESTARTS"
RECENT_SECONDS = 30.0
"""Docker waits 0.1, 0.2, 0.4, ... seconds; a start takes one, or some on a busy machine."""


def again(log: Path) -> Exit | None:
    """The code to end with at once, if this start is one of those that follow a failure by themselves."""
    found, path = job_state.read_json(_path(log)), _path(log)
    if not found:
        return None
    if found["left"] <= 0 or time.time() - found["time"] > RECENT_SECONDS:
        path.unlink(missing_ok=True)
        return None
    job_state.write_json(path, {**found, "left": found["left"] - 1})
    return Exit(found["code"])


def remember(log: Path, code: Exit) -> None:
    restarts = int(os.environ.get(RESTARTS_VARIABLE) or 0)
    if restarts and code is not Exit.OK and not code.retryable and log != Path(os.devnull):
        job_state.write_json(_path(log), {"code": int(code), "time": time.time(), "left": restarts})


def _path(log: Path) -> Path:
    return log.with_suffix(".end.json")
