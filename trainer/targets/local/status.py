"""The status of a job on this machine, found by its model_dir: from its chief, or from result.json."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from typing import TYPE_CHECKING

from trainer import host, sockets
from trainer.job import load
from trainer.job.errors import Exit, UserError, outcome
from trainer.job.messages import command_line
from trainer.model_dir import checkpoint, layout, result
from trainer.model_dir import state as job_state
from trainer.model_dir.files import is_free, json_object, read_json
from trainer.model_dir.state import State
from trainer.protocol.status import read
from trainer.targets import page as pages
from trainer.targets.answers import read_stacks
from trainer.targets.base import ContainerState, JobOverview, Page
from trainer.targets.local import output
from trainer.targets.show import summary

if TYPE_CHECKING:
    from trainer.job.spec import JobSpec
    from trainer.model_dir.stacks import Stacks

ANSWER_SECONDS = 5.0
"""How long the chief may take to answer, and to start or exit."""
STACKS_SECONDS = 10.0
"""How long the stacks of all tasks may take."""
ANSWER_POLL_SECONDS = 0.1
MOST_BYTES = 64 << 20
"""The longest answer of a chief that is read."""


def is_model_dir(path: str) -> bool:
    """Whether a job has begun there, or one of this machine is starting and has no chief yet."""
    return layout.lock(path).exists() or output.begun(path)


def status(model_dir: str, spec: JobSpec | None = None) -> JobOverview:
    """The chief's status while the job runs on this machine, and afterwards its result or its failure.

    Args:
        spec: if given, a result must have the steps that it asks for.

    Raises:
        UserError: there is none of these.
    """
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        if overview := running(model_dir):
            return overview
        # A launcher without a chief: it starts one, and a state is of the run before; or its chief has just ended.
        launched, in_use = output.written(model_dir), job_state.in_use(model_dir)
        late = time.monotonic() > deadline
        if overview := _ended(model_dir, spec, in_use or (launched and not late)):
            return overview
        if launched and not in_use and (late or not layout.state(model_dir).exists()):
            return JobOverview(spec.name if spec else model_dir, "starting")
        if not (launched or in_use):
            raise UserError(f"{model_dir}: no job runs there on this machine; {_how_it_ended(model_dir)}")
        if late:
            raise UserError(
                f"{model_dir}: a job uses it, but its chief does not answer on this machine: it is starting or "
                "suspended, or runs in a container or on another machine; try again, or ask there"
            )
        time.sleep(ANSWER_POLL_SECONDS)


def stacks(model_dir: str) -> Stacks:
    """The stacks of all tasks of a job that runs on this machine, from its chief.

    Raises:
        TrainerError: Exit.TARGET, if none runs there, or its chief does not answer.
    """
    port = _chief_port(model_dir)
    return read_stacks(b"" if port is None else _get(port, "/stacks", STACKS_SECONDS), model_dir)


def page(model_dir: str) -> Page:
    """The page of a job: from its chief while it runs on this machine, and afterwards from its files.

    Raises:
        UserError: there is none.
    """
    deadline = time.monotonic() + ANSWER_SECONDS
    while (port := _chief_port(model_dir)) is None and time.monotonic() < deadline:
        if not (output.written(model_dir) or job_state.in_use(model_dir)):
            break
        time.sleep(ANSWER_POLL_SECONDS)
    if port is None:
        return pages.of_files(model_dir)
    if not json_object(_get(port, "/page/state")):
        raise UserError(f"{model_dir}: {pages.NONE}")
    return Page(address=f"http://localhost:{port}/")


def last_spec(model_dir: str) -> JobSpec | None:
    """The spec of the last job that began there; None if it is not known, or one of another version."""
    try:
        return load.build(found) if (found := read_json(layout.spec(model_dir))) else None
    except UserError:
        return None


def hint(model_dir: str) -> str:
    """How to ask for the status of a job that runs on this machine; empty if none runs there."""
    if _chief_port(model_dir) is None:
        return ""
    return f"a job of this spec runs on this machine: {command_line(['trainer', 'status', model_dir], [])}"


def running(model_dir: str) -> JobOverview | None:
    """The status from the chief that runs on this machine; None if there is none."""
    port = _chief_port(model_dir)
    answer = _get(port, "/status") if port is not None else b""
    if not answer:
        return None
    try:
        job = read(answer)
    except ValueError as error:
        raise UserError(f"{model_dir}: its chief's answer cannot be read: {error}; use the chief's trainer") from None
    tasks = {name: ContainerState(row.state) for name, row in job.tasks.items()}
    return JobOverview(job.job, job.shown_phase, job.end.code if job.end else 0, tasks=tasks, job=job)


def _ended(model_dir: str, spec: JobSpec | None, in_use: bool) -> JobOverview | None:
    """The end of the last run; None if it left none, or may still run."""
    if layout.state(model_dir).exists():  # a run that began after the result
        end = job_state.load(model_dir, 0.0).end
        return failure(model_dir, end) if end and not in_use else None
    result = summary.read_result(model_dir)
    if result is None or (spec and _lacks_steps(model_dir, spec)):
        return None
    return JobOverview(result.job, "done", job=result)


def failure(model_dir: str, end: job_state.End) -> JobOverview:
    steps = checkpoint.steps(model_dir)
    again = f"resumes after the checkpoint of step {steps[-1]}" if steps else "starts again"
    what_next: str | None = (
        f"the same command {again}; `{command_line(['trainer', 'debug', model_dir], [])}` says what to try; "
        f"TensorFlow's output is in {layout.logs(model_dir)}"
    )
    if end.code == Exit.STOPPED:  # the line about a stop names the checkpoint itself
        what_next = None
    return JobOverview(end.job, outcome(end.code), end.code, last_line=end.message, next=what_next)


def _lacks_steps(model_dir: str, spec: JobSpec) -> bool:
    finished = result.finished(model_dir)
    return spec.traits.trains and finished is not None and not result.has_all_steps(finished, spec)


def _how_it_ended(model_dir: str) -> str:
    """The end of a job whose status is not known, as far as its files show it, and what to do next."""
    if not is_model_dir(model_dir):
        return "none was started; `trainer local` starts one"
    if not layout.state(model_dir).exists() and (finished := result.finished(model_dir)):
        shown = command_line(["trainer", "status", model_dir], [])
        return f"its result has {finished.steps} steps, not those of the spec; `{shown}` shows it"
    spec = last_spec(model_dir)
    if spec and spec.program:
        return (
            "the last one was killed before its programs ended; the same command starts them again; their stderr is in "
            f"{layout.logs(model_dir)}"
        )
    steps = checkpoint.steps(model_dir)
    where = f"after the checkpoint of step {steps[-1]}" if steps else "before its first checkpoint"
    again = "resumes" if steps else "starts again"
    return (
        f"the last one stopped or failed {where}; the same command {again}; TensorFlow's output is in "
        f"{layout.logs(model_dir)}"
    )


def launcher(model_dir: str) -> int:
    """The process id of the program that restarts the tasks of the job that runs there; 0 if none is found.

    Raises:
        UserError: the state names a process that did not start the chief; whoever may write to model_dir can do that.
    """
    state = _state_of_chief(model_dir)
    if state is None or not state.launcher:
        return 0
    chief = sockets.listener(state.control_port)
    if state.launcher > 1 and (not host.LINUX or (chief and host.parent(chief) == state.launcher)):
        return state.launcher
    named, found = layout.state(model_dir).name, f"process {chief}" if chief else "that chief"
    raise UserError(
        f"{model_dir}: process {state.launcher}, which {named} names, did not start the chief that answers at port "
        f"{state.control_port}; stop {found} yourself"
    )


def _chief_port(model_dir: str) -> int | None:
    """The control port of the chief that runs on this machine; None if there is none."""
    state = _state_of_chief(model_dir)
    return state.control_port if state else None


def _state_of_chief(model_dir: str) -> State | None:
    """What the chief has saved that runs on this machine; None if there is none."""
    if is_free(layout.lock(model_dir)):  # no chief: a folder copied from a running job names the original's chief
        return None
    state = job_state.load(model_dir, 0.0)
    # The port may be another job's: it is free again after a job has ended.
    answer = json_object(_get(state.control_port, "/healthz"))
    return state if answer.get("incarnation") == state.incarnation != "" else None


def _get(port: int, path: str, seconds: float = ANSWER_SECONDS) -> bytes:
    """What a control port of this machine answers; nothing if it does not. Another program may have the port."""
    if not 0 < port < 2**16:
        return b""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.connect()
        deadline, limit = time.monotonic() + seconds, threading.Timer(seconds, _cut, [connection.sock])
        limit.start()  # the connection's timeout is that of each packet
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read(MOST_BYTES)
        finally:
            limit.cancel()
        complete = not response.length and len(body) < MOST_BYTES and time.monotonic() < deadline
        return body if complete else b""
    except (OSError, http.client.HTTPException, ValueError, OverflowError, MemoryError):
        return b""
    finally:
        connection.close()


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
