"""Jobs that a Python program starts on this machine: what docs/python.md and test_notebook.py do not show."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import trainer
from tests.local.specs import PACED, mirrored
from tests.tools.harness import Job, alive
from trainer.targets.local import launcher, output

PROGRAM = """
import json, os, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
print("told", sys.argv[1:], flush=True)
if sys.argv[1] == "fail":
    raise ValueError("nothing fits")
if sys.argv[1] == "wait":
    time.sleep(600)
import trainer
trainer.report(step=40, auc=0.75, note="x")
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Path]:
    """The spec of a job of two tasks without TensorFlow. It does not outlive the test."""
    (tmp_path / "work.py").write_text(PROGRAM)
    path = tmp_path / "job.yaml"
    spec: dict[str, Any] = {
        "name": "work", "strategy": "multi_worker_mirrored", "program": ["python", "work.py", "well"],
        "tasks": {"worker": 2}, "model_dir": str(tmp_path / "run"), "deadlines": {"stop": 4},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(spec))
    yield path
    if launcher.is_used(spec["model_dir"]):
        trainer.attach(path).delete()


def test_a_program_has_the_numbers_that_it_reported(program: Path) -> None:
    run = trainer.load(program).submit("local")
    run.wait(60)
    assert (run.result.auc, run.result.steps) == (0.75, 40)
    assert run.result.figures == trainer.attach(program).result.figures
    assert [line.text for line in run.logs("worker:1") if line.text.startswith("told")] == ["told ['well']"]


def test_a_job_that_fails_is_an_error_with_its_code_and_line(program: Path) -> None:
    run = trainer.load(program, {"program": ["python", "work.py", "fail"]}).submit("local")
    with pytest.raises(trainer.JobFailed, match=r"ValueError: nothing fits \(work\.py:6 ") as caught:
        run.wait(60)
    assert caught.value.code is trainer.Exit.PROGRAM
    # Another program is told the same.
    with pytest.raises(trainer.JobFailed, match="ValueError: nothing fits") as again:
        trainer.attach(program).wait(60)
    assert again.value.code is trainer.Exit.PROGRAM


KEEPS = """
import sys, trainer
run = trainer.load(sys.argv[1], {"program": ["python", "work.py", "wait"]}).submit("local", keep=True)
for line in run.logs("worker:1", follow=True):
    if line.text.startswith("told"):
        break
"""


def test_another_program_ends_a_job_that_was_kept(program: Path) -> None:
    subprocess.run([sys.executable, "-c", KEEPS, str(program)], check=True, timeout=60)
    run = trainer.attach(program)
    found = run.status()
    assert found.phase == "running"
    pids = [row.pid for row in found.job.tasks.values()]  # type: ignore[union-attr]
    assert all(isinstance(pid, int) and alive(pid) for pid in pids)
    assert run.delete().job == "work"
    assert not any(isinstance(pid, int) and alive(pid) for pid in pids)
    with pytest.raises(trainer.JobFailed) as caught:
        run.wait(0)
    assert caught.value.code is trainer.Exit.STOPPED


def test_a_job_of_trainer_local_is_found_and_ended(tmp_path: Path) -> None:
    """By its folder: the spec is not known then."""
    with Job(tmp_path, mirrored(steps=100_000, workers=1, workload=PACED)) as job:
        job.until_step(10)
        run = trainer.attach(job.model_dir)
        assert run.status().phase == "running"
        assert any("replicas_in_sync=1" in line.text for line in run.logs("worker:0"))
        run.delete()
        assert job.wait(10) == trainer.Exit.STOPPED
    assert not output.written(str(job.model_dir))
