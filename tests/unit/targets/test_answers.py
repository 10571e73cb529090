"""Commands that targets run in a container, whose image may be of an earlier version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.cli.fake import STATUS
from trainer.protocol.status import Straggler
from trainer.targets.answers import read_status
from trainer.targets.base import ContainerState, JobOverview
from trainer.targets.container import probe
from trainer.targets.show.overview import describe

ROOT = Path(__file__).parents[3]


STATUS_OF_0_2_0 = {
    "child_pid": 8, "step": 3, "loss": 0.5, "job": "j", "task": "chief:0", "strategy": "parameter_server",
    "phase": "running", "generation": 1, "restarts": 0, "standby": False, "last_checkpoint": None, "waiting_for": None,
    "seconds": 6.5, "events": [{"time": 1.7e9, "text": "generation 1 formed: 2 tasks"}], "end": None,
    "tasks": {
        "chief:0": {"pid": 7, "step": 3, "state": "running", "generation": 1, "restarts": 0, "standby": False},
        "worker:0": {"state": "absent", "generation": 0, "restarts": 0},
    },
}  # fmt: skip


@pytest.fixture
def image_of_0_2_0(tmp_path: Path) -> Path:
    """Has the module that printed an answer in version 0.2.0, and no `trainer probe`."""
    (tmp_path / "trainer/supervisor").mkdir(parents=True)
    (tmp_path / "trainer/__init__.py").touch()
    (tmp_path / "trainer/supervisor/probe.py").write_text(
        f"import json, sys; print(json.dumps({STATUS_OF_0_2_0}) * (sys.argv[1:] == ['status']))"
    )
    return tmp_path


def ask(folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(folder), "TF_CONFIG": '{"cluster": {"worker": ["w:9"]}, "task": {}}'}
    command = [sys.executable, *probe(of_program=False)[1:], "status"]
    return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True)


def test_a_chief_of_version_0_2_0_can_be_asked(image_of_0_2_0: Path) -> None:
    done = ask(image_of_0_2_0)
    job, unreadable = read_status(done.stdout)
    assert unreadable is None, done.stderr
    assert job is not None
    assert (job.step, job.figures, job.tasks["worker:0"].state) == (3, {"loss": 0.5}, "absent")


def test_this_version_has_the_same_command(tmp_path: Path) -> None:
    assert ask(ROOT).stderr.endswith("KeyError: 'type'\n"), "it looked for its task in TF_CONFIG"


def test_an_answer_is_the_chiefs_status() -> None:
    assert read_status(json.dumps(STATUS.document()).encode()) == (STATUS, None)


@pytest.mark.parametrize("answer", ["", "\n", "[]", b"\xff", "port 3222: Connection refused"])
def test_a_chief_that_does_not_answer_is_no_error(answer: str | bytes) -> None:
    assert read_status(answer) == (None, None)


def test_an_answer_of_a_newer_version_is_one_line_of_the_status() -> None:
    status, why = read_status(json.dumps({**STATUS.document(), "version": 3}))
    reported = (
        "the chief's /status cannot be read: version: 3: this trainer reads versions up to 2; use the version of "
        "trainer in its image"
    )
    assert (status, why) == (None, reported)
    found = JobOverview("j", "running", tasks={"worker:0": ContainerState("running")}, unreadable=why)
    assert describe(found).splitlines()[:2] == ["phase       running", f"unreadable  {reported}"]


def test_a_slow_task_is_one_line_of_the_status() -> None:
    slow = replace(STATUS, straggler=Straggler("worker:0", "input", "worker:0 is slow: its steps wait"))
    lines = describe(JobOverview("j", "running", job=slow)).splitlines()
    assert [line.split(None, 1) for line in lines if "slow" in line] == [
        ["straggler", "worker:0 is slow: its steps wait"]
    ]
    assert "straggler" not in describe(JobOverview("j", "running", job=STATUS))
