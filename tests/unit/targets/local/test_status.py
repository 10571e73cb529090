"""The status of a job on this machine, requested from a real control port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from trainer import host
from trainer.cli import main as cli
from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.model_dir import checkpoint, layout, result
from trainer.model_dir import state as job_state
from trainer.model_dir.files import write_json
from trainer.model_dir.result import Computed, Result, Training
from trainer.model_dir.state import End, State
from trainer.protocol.reports import Identity
from trainer.protocol.status import read
from trainer.supervisor.control_port import server
from trainer.targets.base import ContainerState, JobOverview
from trainer.targets.local import status as local
from trainer.targets.local.status import status

T = TypeVar("T")

STATUS: dict[str, Any] = {
    "job": "digits", "task": "chief:0", "strategy": "parameter_server", "restarts": 0, "standby": False, "seconds": 6.5,
    "phase": "running", "generation": 1, "step": 300, "last_checkpoint": None, "waiting_for": None, "events": [],
    "end": None, "tasks": {"chief:0": {"state": "running", "pid": 7}, "worker:1": {"state": "lost"}},
}  # fmt: skip


def ask(model_dir: Path, incarnation: str, answer: dict[str, Any]) -> JobOverview:
    return while_listening(model_dir, incarnation, answer, lambda: status(str(model_dir)))


def while_listening(
    model_dir: Path, incarnation: str, answer: dict[str, Any], question: Callable[[], T], runs: bool = True
) -> T:
    """The answer to a question while a chief with this incarnation listens on the port that model_dir names.

    Args:
        runs: whether a chief has the lock of model_dir.
    """

    async def run() -> T:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        opened = await server.serve(port, "127.0.0.1", Identity("digits", "chief:0", incarnation), lambda: answer)
        job_state.save(str(model_dir), State(generation=1, control_port=port, incarnation="this one"))
        try:
            with job_state.lock(str(model_dir)) if runs else contextlib.nullcontext():
                return await asyncio.to_thread(question)
        finally:
            await opened.close()

    return asyncio.run(run())


def test_a_running_job_is_asked(tmp_path: Path) -> None:
    tasks = {"chief:0": ContainerState("running"), "worker:1": ContainerState("lost")}
    assert ask(tmp_path, "this one", STATUS) == JobOverview(
        "digits", "running", tasks=tasks, job=read(json.dumps(STATUS))
    )


def test_a_job_that_has_just_failed_has_its_code(tmp_path: Path) -> None:
    found = ask(tmp_path, "this one", {**STATUS, "phase": "failed", "end": {"code": 13, "message": "nan"}})
    assert (found.phase, found.code) == ("failed", 13)


def test_another_job_that_has_the_port_now_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no job runs there on this machine; none was started; `trainer local` starts"):
        while_listening(tmp_path, "another", STATUS, lambda: status(str(tmp_path)), runs=False)


def test_the_chief_that_a_copy_of_a_running_jobs_folder_names_is_not_its_own(tmp_path: Path) -> None:
    """A `delete` of the copy must not stop that job."""

    def question() -> tuple[JobOverview | None, int]:
        state = job_state.load(str(tmp_path), 0.0)
        job_state.save(str(tmp_path), replace(state, launcher=os.getppid()))
        return local.running(str(tmp_path)), local.launcher(str(tmp_path))

    assert while_listening(tmp_path, "this one", STATUS, question, runs=False) == (None, 0)
    job_state.lock(str(tmp_path)).close()
    assert while_listening(tmp_path, "this one", STATUS, question, runs=False) == (None, 0)


def launcher_of(model_dir: Path, pid: int) -> int:
    def question() -> int:
        state = job_state.load(str(model_dir), 0.0)
        job_state.save(str(model_dir), replace(state, launcher=pid))
        return local.launcher(str(model_dir))

    return while_listening(model_dir, "this one", {}, question)


def test_the_launcher_is_the_parent_of_the_process_that_answers(tmp_path: Path) -> None:
    assert launcher_of(tmp_path, os.getppid()) == os.getppid()
    assert launcher_of(tmp_path, 0) == 0, "elsewhere a chief has none"


@pytest.mark.skipif(not host.LINUX, reason="without /proc it is not known which process listens on a port")
@pytest.mark.parametrize("pid", [-1, 1, os.getpid(), 2**22 + 1], ids=["all of the user's", "init", "own", "nobody's"])
def test_a_process_that_did_not_start_the_chief_is_no_launcher(tmp_path: Path, pid: int) -> None:
    with pytest.raises(
        UserError, match=rf"process {pid}, which state\.json names, did not start the chief that answers"
    ):
        launcher_of(tmp_path, pid)


def test_a_job_that_is_over_is_read(tmp_path: Path) -> None:
    computed = Result("digits", "graph", Computed({"y": 238}), 3.5, 1, [], {}, [], {}, {}, {})
    result.write(str(tmp_path), computed)
    assert status(str(tmp_path)) == JobOverview("digits", "done", job=computed)


@pytest.mark.parametrize("port", [0, -1, 1, 70_000])
def test_a_port_without_a_chief_is_an_error_in_one_line(tmp_path: Path, port: int) -> None:
    job_state.save(str(tmp_path), State(control_port=port, incarnation="this one"))
    with pytest.raises(UserError, match=rf"^{tmp_path}: no job runs there on this machine; none was started"):
        status(str(tmp_path))


@pytest.mark.parametrize(
    ("steps", "where"),
    [
        ([], "before its first checkpoint; the same command starts again"),
        ([300, 700], "after the checkpoint of step 700; the same command resumes"),
    ],
)
def test_a_job_that_ended_without_a_result_shows_how_far_it_came(tmp_path: Path, steps: list[int], where: str) -> None:
    with job_state.lock(str(tmp_path)):
        job_state.save(str(tmp_path), State(generation=2))
    for step in steps:
        checkpoint.save(tmp_path, step, {}, {})
    with pytest.raises(UserError) as raised:
        status(str(tmp_path))
    assert str(raised.value) == (
        f"{tmp_path}: no job runs there on this machine; the last one stopped or failed {where}; TensorFlow's output "
        f"is in {tmp_path}/.trainer/logs"
    )


def test_a_program_that_was_killed_is_not_judged_by_checkpoints_of_ours(tmp_path: Path) -> None:
    with job_state.lock(str(tmp_path)):
        job_state.save(str(tmp_path), State(generation=2))
    spec = {"name": "digits", "strategy": "one_device", "program": ["python", "x.py"]}
    write_json(layout.spec(str(tmp_path)), spec)
    with pytest.raises(UserError) as raised:
        status(str(tmp_path))
    assert str(raised.value) == (
        f"{tmp_path}: no job runs there on this machine; the last one was killed before its programs ended; the same "
        f"command starts them again; their stderr is in {tmp_path}/.trainer/logs"
    )


def write_result(model_dir: Path, **key: Any) -> Result:
    training = Training(100, {}, None, None, {}, None, None)
    found = Result("digits", "one_device", training, 3.5, 1, [], {}, [], {}, key, {})
    result.write(str(model_dir), found)
    return found


@pytest.mark.parametrize("state", [State(generation=2), State(generations_without_progress=1)])
def test_a_result_is_not_that_of_a_later_run_that_did_not_succeed(tmp_path: Path, state: State) -> None:
    """As when train.steps was increased, and the run was killed."""
    found = write_result(tmp_path)
    assert status(str(tmp_path)) == JobOverview("digits", "done", job=found)
    with job_state.lock(str(tmp_path)):
        job_state.save(str(tmp_path), state)
    with pytest.raises(UserError, match="the last one stopped or failed before its first checkpoint"):
        status(str(tmp_path))
    job_state.fail(str(tmp_path), State(end=End("digits", 10, "worker:1: has not reported")))
    assert (status(str(tmp_path)).phase, status(str(tmp_path)).code) == ("failed", 10)
    job_state.forget(str(tmp_path))
    assert status(str(tmp_path)).phase == "done"


def test_a_result_has_the_steps_of_the_spec(tmp_path: Path) -> None:
    found = write_result(tmp_path, **{"train.steps": 100, "train.epochs": None})
    job_state.lock(str(tmp_path)).close()

    def of(steps: int) -> JobOverview:
        train = {"steps": steps}
        raw = {"name": "digits", "strategy": "one_device", "model_dir": str(tmp_path), "train": train}
        return status(str(tmp_path), build(raw))

    assert of(100) == JobOverview("digits", "done", job=found)
    with pytest.raises(UserError) as raised:
        of(200)
    assert str(raised.value) == (
        f"{tmp_path}: no job runs there on this machine; its result has 100 steps, not those of the spec; `trainer "
        f"status {tmp_path}` shows it"
    )


@pytest.mark.parametrize(
    ("end", "steps", "next_step"),
    [
        (
            End("digits", 13, "nan"),
            [],
            "the same command starts again; `trainer debug {0}` says what to try; "
            "TensorFlow's output is in {0}/.trainer/logs",
        ),
        (
            End("digits", 2, "full"),
            [300, 700],
            "the same command resumes after the checkpoint of step 700; `trainer debug {0}` says what to try; "
            "TensorFlow's output is in {0}/.trainer/logs",
        ),
        (End("digits", 143, "stopped by a signal; the checkpoint of step 700 is kept"), [700], None),
    ],
)
def test_a_job_that_has_failed_keeps_its_code(
    tmp_path: Path, end: End, steps: list[int], next_step: str | None
) -> None:
    for step in steps:
        checkpoint.save(tmp_path, step, {}, {})
    job_state.fail(str(tmp_path), State(2, 1, incarnation="this one", end=end))
    expected = next_step and next_step.format(tmp_path)
    phase = "stopped" if end.code == 143 else "failed"
    assert status(str(tmp_path)) == JobOverview("digits", phase, end.code, last_line=end.message, next=expected)


@pytest.mark.parametrize("end", [None, End("digits", 13, "the run before")])
def test_a_chief_that_does_not_answer_here_is_no_end(
    tmp_path: Path, end: End | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another machine, or at its start."""
    monkeypatch.setattr(local, "ANSWER_SECONDS", 0.2)
    with job_state.lock(str(tmp_path)):
        job_state.save(str(tmp_path), State(control_port=1, end=end))
        with pytest.raises(UserError, match=rf"^{tmp_path}: a job uses it, but its chief does not answer on this mach"):
            status(str(tmp_path))


def test_a_chief_that_is_exiting_is_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its port is closed before the kernel releases its lock."""
    lock = job_state.lock(str(tmp_path))
    job_state.fail(str(tmp_path), State(end=End("digits", 13, "nan")))
    monkeypatch.setattr("time.sleep", lambda seconds: lock.close())
    assert status(str(tmp_path)).code == 13


HEALTHY = b'{"incarnation": "this one"}'


def answers(*replies: bytes, stay: bool = False) -> tuple[int, threading.Thread]:
    """A program that sends these replies, one to each connection; with `stay` it never ends the last one."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener:
            for index, reply in enumerate(replies):
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(1 << 16)
                    connection.sendall(reply)
                    while stay and index == len(replies) - 1:
                        connection.sendall(b" ")
                        time.sleep(0.05)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return listener.getsockname()[1], thread


def http_of(body: bytes, length: object = None) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n%s" % (str(length or len(body)).encode(), body)


@pytest.mark.parametrize(
    "replies",
    [
        [b"SSH-2.0-OpenSSH_9.2\r\n"],
        [http_of(HEALTHY, length=1 << 62)],
        [http_of(HEALTHY, length=1 << 70)],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n{"],
        [http_of(HEALTHY), b""],
        [http_of(HEALTHY), http_of(b'{"job": "di', length=400)],
    ],
)
def test_whatever_else_has_the_port_is_no_chief(tmp_path: Path, replies: list[bytes]) -> None:
    port, thread = answers(*replies)
    job_state.save(str(tmp_path), State(control_port=port, incarnation="this one", end=End("digits", 13, "nan")))
    with job_state.lock(str(tmp_path)):
        assert local.running(str(tmp_path)) is None
    thread.join(60)
    assert not thread.is_alive()
    assert status(str(tmp_path)).code == 13


def test_an_answer_that_does_not_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "ANSWER_SECONDS", 0.3)
    port, thread = answers(b"HTTP/1.1 200 OK\r\n\r\n" + HEALTHY, stay=True)
    job_state.save(str(tmp_path), State(control_port=port, incarnation="this one", end=End("digits", 13, "nan")))
    with job_state.lock(str(tmp_path)):
        assert local.running(str(tmp_path)) is None
    thread.join(60)
    assert not thread.is_alive()
    assert status(str(tmp_path)).code == 13


def test_an_answer_has_a_maximum_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MOST_BYTES", 50)
    monkeypatch.setattr(local, "ANSWER_SECONDS", 60.0)
    port, thread = answers(b"HTTP/1.1 200 OK\r\n\r\n" + HEALTHY + b" " * 50, stay=True)
    job_state.save(str(tmp_path), State(control_port=port, incarnation="this one", end=End("digits", 13, "nan")))
    with job_state.lock(str(tmp_path)):
        assert local.running(str(tmp_path)) is None
    thread.join(60)
    assert not thread.is_alive()
    assert status(str(tmp_path)).code == 13


@pytest.mark.parametrize(("incarnation", "hinted"), [("this one", True), ("another", False)])
def test_a_spec_whose_job_runs_here_and_not_on_the_target(
    tmp_path: Path, incarnation: str, hinted: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real target, which fails: there is no cluster."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "my run").mkdir()
    spec = tmp_path / "job.yaml"
    spec.write_text(f"{{name: digits, strategy: one_device, model_dir: {tmp_path}/my run}}")
    asked = ["status", str(spec), "--target", "kubernetes"]
    assert while_listening(tmp_path / "my run", incarnation, STATUS, lambda: cli.main(asked)) == Exit.TARGET
    (line,) = capsys.readouterr().err.splitlines()
    ending = f"; a job of this spec runs on this machine: trainer status '{tmp_path}/my run'"
    assert (line.endswith(ending), "runs on this machine" in line) == (hinted, hinted)
