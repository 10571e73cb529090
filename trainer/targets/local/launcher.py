"""A `trainer local` as a separate process, which this one has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import NamedTuple

from trainer import host
from trainer.job import environment
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.spec import JobSpec
from trainer.model_dir import state as job_state
from trainer.targets.local import output

COMMAND = host.command("trainer.targets.local.detached")
END_SECONDS = 15.0
"""How long a launcher may take to end after SIGTERM, besides deadlines.stop of its tasks."""
END_POLL_SECONDS = 0.1


class Launcher(NamedTuple):
    process: subprocess.Popen[bytes]
    run: str
    """The id of the run, in its variable TRAINER_RUN."""

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


_LAST: dict[str, Launcher] = {}
"""The last launcher of each model_dir: a notebook may have forgotten the Run."""


def start(spec: JobSpec, model_dir: str, folder: Path, keep: bool) -> None:
    """Starts a job in a new session: the interruption of a notebook's cell reaches only the kernel's processes.

    Args:
        folder: where the paths in the spec begin.
        keep: whether it outlives this process.

    Raises:
        UserError: the model_dir is in use, or cannot be written.
    """
    if is_used(model_dir):
        different = job_state.difference(model_dir, spec.model_dump(mode="json", exclude_defaults=True))
        raise UserError(
            f"model_dir: {model_dir}: a job is running there{different}; trainer.attach({model_dir!r}) finds it, or "
            "choose another one"
        )
    left_out = {environment.SET, environment.PARENT}  # TRAINER_SET is in the spec already
    environ = {name: value for name, value in os.environ.items() if name not in left_out}
    environ |= {environment.JOB: spec.model_dump_json(exclude_defaults=True), environment.RUN: uuid.uuid4().hex}
    if not keep:
        environ[environment.PARENT] = str(os.getpid())
    nothing = subprocess.DEVNULL
    with contextlib.closing(output.begin(model_dir)) as kept:
        process = subprocess.Popen(
            COMMAND, stdin=nothing, stdout=nothing, stderr=nothing, env=environ, cwd=folder, start_new_session=True,
            pass_fds=kept.descriptors,
        )  # fmt: skip
    _LAST[os.path.realpath(model_dir)] = Launcher(process, environ[environment.RUN])


def last(model_dir: str) -> Launcher | None:
    """The last that this process has started for a model_dir."""
    return _LAST.get(os.path.realpath(model_dir))


def is_used(model_dir: str) -> bool:
    """Whether a job runs there, started by this process or by another one."""
    launched = last(model_dir)
    return (launched is not None and launched.alive) or output.written(model_dir) or job_state.in_use(model_dir)


def end(name: str, pid: int, seconds: float) -> None:
    """Stops a job by SIGTERM to its launcher, and waits for that to end.

    Raises:
        TrainerError: Exit.TARGET, if it does not in this time.
    """
    since, deadline = host.started(pid), time.monotonic() + seconds
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    while host.started(pid) == since != "":
        if time.monotonic() > deadline:
            raise TrainerError(f"{name}: process {pid} has not ended {seconds:g} s after SIGTERM; kill it", Exit.TARGET)
        time.sleep(END_POLL_SECONDS)
