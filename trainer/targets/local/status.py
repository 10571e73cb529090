"""The status of a job on this machine, found by its model_dir: from its chief, or from result.json."""

from __future__ import annotations

import http.client

from trainer.job.errors import UserError
from trainer.model_dir import checkpoint, layout
from trainer.model_dir import state as job_state
from trainer.model_dir.files import json_object
from trainer.protocol.status import read
from trainer.targets import summary
from trainer.targets.base import ContainerState, JobOverview
from trainer.targets.text import command_line

SECONDS = 5.0
"""Timeout for the chief's answer."""


def is_model_dir(path: str) -> bool:
    """Whether a job has begun there."""
    return layout.lock(path).exists()


def status(model_dir: str) -> JobOverview:
    """The chief's status while the job runs on this machine, and afterwards its result.

    Raises:
        UserError: there is neither.
    """
    if (port := _chief_port(model_dir)) is not None:
        try:
            found = read(_get(port, "/status"))
        except ValueError as error:
            raise UserError(
                f"{model_dir}: its chief's answer cannot be read: {error}; use the chief's trainer"
            ) from None
        tasks = {name: ContainerState(row.state) for name, row in found.tasks.items()}
        return JobOverview(found.job, found.phase, found.end.code if found.end else 0, tasks=tasks, job=found)
    if result := summary.read_result(model_dir):
        return JobOverview(result.job, "done", job=result)
    raise UserError(f"{model_dir}: no job runs there on this machine; {_how_it_ended(model_dir)}")


def hint(model_dir: str) -> str:
    """How to ask for the status of a job that runs on this machine; empty if none runs there."""
    if _chief_port(model_dir) is None:
        return ""
    return f"a job of this spec runs on this machine: {command_line(['trainer', 'status', model_dir], [])}"


def _how_it_ended(model_dir: str) -> str:
    """The end of a job without a result, as far as its files show it, and what to do next."""
    if not is_model_dir(model_dir):
        return "none was started; `trainer local` starts one"
    steps = checkpoint.steps(model_dir)
    where = f"after the checkpoint of step {steps[-1]}" if steps else "before its first checkpoint"
    again = "resumes" if steps else "starts again"
    return (
        f"the last one stopped or failed {where}; the same command {again}; TensorFlow's output is in "
        f"{layout.logs(model_dir)}"
    )


def _chief_port(model_dir: str) -> int | None:
    """The control port of the chief that runs on this machine; None if there is none."""
    state = job_state.load(model_dir, 0.0)
    # It may be another job's: the port is free again after a job has ended.
    answer = json_object(_get(state.control_port, "/healthz"))
    return state.control_port if answer.get("incarnation") == state.incarnation != "" else None


def _get(port: int, path: str) -> bytes:
    """What a control port of this machine answers; nothing if it does not."""
    if not 0 < port < 2**16:
        return b""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return b""
    finally:
        connection.close()
