"""A workload file that is edited while its job runs: no task may train with code other than that of the job's start."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.local.specs import PACED, mirrored, parameter_server
from tests.tools.harness import Job
from trainer.job.errors import Exit

pytestmark = pytest.mark.slow

CHANGED = "changed while the job ran, "


def test_a_synchronous_job_ends_when_a_child_would_load_another_module(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from pace import *\n")
    helper = tmp_path / "pace.py"
    helper.write_text(Path(PACED).read_text())
    with Job(tmp_path, mirrored(steps=30_000, workload="mine.py")) as job:
        job.until_step(20)
        helper.write_text(helper.read_text().replace("4_000", "2_000"))
        job.signal("worker:1")
        assert job.wait() == Exit.USER, job.output
    # Each task prints it; both had to start a child, and either may have been the first to tell.
    reported = {line.partition("workload: ")[2] for line in job.lines if CHANGED in line}
    assert reported == {
        f"pace.py {CHANGED}and all of it must train with the same code; start the job again, with the change or "
        "without it"
    }
    assert "generation 3" not in job.output


def test_a_parameter_server_job_goes_on_until_its_coordinator_would_load_another_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(Path(PACED).read_text())
    began_with = hashlib.sha256(path.read_bytes()).hexdigest()
    with Job(tmp_path, parameter_server(steps=30_000, workload="mine.py")) as job:
        before = job.until_step(20)
        path.write_text("def model(:\n")
        job.signal("worker:1")  # which loads no workload
        old = before["tasks"]["worker:1"]["child_pid"]
        job.until("worker:1 is back", lambda s: s["tasks"]["worker:1"].get("child_pid") not in (None, old))
        job.until("a checkpoint", lambda s: s["last_checkpoint"])
        job.signal("chief:0")
        assert job.wait() == Exit.USER, job.output
    assert f"chief:0: workload: mine.py {CHANGED}" in job.output
    for meta in job.model_dir.glob("checkpoints/*/meta.json"):
        assert json.loads(meta.read_text())["compatibility_key"]["workload_sha256"] == began_with
