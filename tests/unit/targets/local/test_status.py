"""The status of a job on this machine, requested from a real control port."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from trainer.cli import main as cli
from trainer.job.errors import Exit, UserError
from trainer.model_dir import checkpoint, result
from trainer.model_dir import state as job_state
from trainer.model_dir.result import Computed, Result
from trainer.model_dir.state import State
from trainer.protocol.reports import Identity
from trainer.protocol.status import read
from trainer.supervisor import server
from trainer.targets.base import ContainerState, JobOverview
from trainer.targets.local.status import status

T = TypeVar("T")

STATUS: dict[str, Any] = {
    "job": "digits", "task": "chief:0", "strategy": "parameter_server", "restarts": 0, "standby": False, "seconds": 6.5,
    "phase": "running", "generation": 1, "step": 300, "last_checkpoint": None, "waiting_for": None, "events": [],
    "end": None, "tasks": {"chief:0": {"state": "running", "pid": 7}, "worker:1": {"state": "lost"}},
}  # fmt: skip


def ask(model_dir: Path, incarnation: str, answer: dict[str, Any]) -> JobOverview:
    return while_listening(model_dir, incarnation, answer, lambda: status(str(model_dir)))


def while_listening(model_dir: Path, incarnation: str, answer: dict[str, Any], question: Callable[[], T]) -> T:
    """The answer to a question while a chief with this incarnation listens on the port that model_dir names."""

    async def run() -> T:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        runner = await server.serve(port, "127.0.0.1", Identity("digits", "chief:0", incarnation), lambda: answer, None)
        job_state.save(str(model_dir), State(generation=1, control_port=port, incarnation="this one"))
        try:
            return await asyncio.to_thread(question)
        finally:
            await runner.cleanup()

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
        ask(tmp_path, "another", STATUS)


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
    ("steps", "told"),
    [
        ([], "before its first checkpoint; the same command starts again"),
        ([300, 700], "after the checkpoint of step 700; the same command resumes"),
    ],
)
def test_a_job_that_ended_without_a_result_shows_how_far_it_came(tmp_path: Path, steps: list[int], told: str) -> None:
    with job_state.lock(str(tmp_path)):
        job_state.save(str(tmp_path), State(generation=2))
    for step in steps:
        checkpoint.save(tmp_path, step, {}, {})
    with pytest.raises(UserError) as raised:
        status(str(tmp_path))
    assert str(raised.value) == (
        f"{tmp_path}: no job runs there on this machine; the last one stopped or failed {told}; TensorFlow's output "
        f"is in {tmp_path}/logs"
    )


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
    asked = ["status", str(spec)]
    assert while_listening(tmp_path / "my run", incarnation, STATUS, lambda: cli.main(asked)) == Exit.TARGET
    (line,) = capsys.readouterr().err.splitlines()
    ending = f"; a job of this spec runs on this machine: trainer status '{tmp_path}/my run'"
    assert (line.endswith(ending), "this machine" in line) == (hinted, hinted)
