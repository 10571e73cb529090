"""The status of a job on this machine, found by its model_dir: from its chief, or from result.json."""

from __future__ import annotations

import http.client

from trainer.job.errors import UserError
from trainer.model_dir import layout
from trainer.model_dir import state as job_state
from trainer.model_dir.files import json_object
from trainer.protocol.status import read
from trainer.targets import summary
from trainer.targets.base import ContainerState, JobOverview

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
    state = job_state.load(model_dir, 0.0)
    # It may be another job's: the port is free again after a job has ended.
    if json_object(_get(state.control_port, "/healthz")).get("incarnation") == state.incarnation != "":
        try:
            found = read(_get(state.control_port, "/status"))
        except ValueError as error:
            raise UserError(
                f"{model_dir}: its chief's answer cannot be read: {error}; use the chief's trainer"
            ) from None
        tasks = {name: ContainerState(row.state) for name, row in found.tasks.items()}
        return JobOverview(found.job, found.phase, found.end.code if found.end else 0, tasks=tasks, job=found)
    if result := summary.read_result(model_dir):
        return JobOverview(result.job, "done", job=result)
    raise UserError(
        f"{model_dir}: no job runs there on this machine, and none has completed; `trainer local` starts or resumes "
        f"one; TensorFlow's output of the last is in {layout.logs(model_dir)}"
    )


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
