"""`notify` of real jobs: each end is reported once, whatever becomes of the chief and of the receiver."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.local.specs import PACED, mirrored, parameter_server
from tests.tools.harness import Job
from tests.tools.receiver import receiver
from trainer.page import files

ALL = ["done", "failed", "stopped"]


def told(address: str, **more: Any) -> dict[str, Any]:
    return {"notify": {"webhook": address, "when": ALL}, **more}


def test_success_is_reported_once_with_the_figures_of_the_result(tmp_path: Path) -> None:
    with receiver() as server:
        spec = mirrored(steps=20, workers=1, **told(server.address))
        with Job(tmp_path, spec) as job:
            assert job.wait() == 0, job.output
        with Job(tmp_path, spec) as again:  # already complete
            assert again.wait() == 0, again.output
    (request,) = server.requests
    report, result = request.document, job.result()
    assert (report["job"], report["outcome"], report["code"]) == ("digits", "done", 0)
    assert report["figures"] == {name: result[name] for name in ("steps", "test_loss", "test_accuracy")}
    assert (report["step"], report["generations"], report["restarts"]) == (20, 1, 0)
    assert f"test_accuracy={result['test_accuracy']:.4g}" in report["text"]
    assert "warning: notify" not in job.output


def test_a_failure_is_reported_with_its_reason(tmp_path: Path) -> None:
    workload = tmp_path / "broken.py"
    workload.write_text("def model():\n    raise ValueError('é <no> layers')\n\ndef data(shard):\n    return None\n")
    with receiver() as server:
        spec = mirrored(steps=20, workload=str(workload), notify={"webhook": server.address})
        with Job(tmp_path, spec) as job:
            code = job.wait()
    (request,) = server.requests
    assert (request.document["outcome"], request.document["code"]) == ("failed", code)
    assert "é <no> layers" in request.document["message"]
    assert "é &lt;no&gt; layers" in request.document["text"]


def test_a_chief_that_cannot_start_reports_that(tmp_path: Path) -> None:
    """Of a job that a queue starts at night nobody sees the log."""
    with receiver() as server:
        notify = {"webhook": server.address, "command": ["/no/such"]}
        with Job(tmp_path, mirrored(steps=20, workers=1, notify=notify)) as job:
            assert job.wait() == 2, job.output
    (request,) = server.requests
    assert request.document["message"] == "notify.command: '/no/such': no such file"


@pytest.mark.slow
def test_a_stop_and_the_end_of_the_resumed_job_are_two_reports(tmp_path: Path) -> None:
    with receiver() as server:
        spec = mirrored(steps=300, workers=1, workload=PACED, **told(server.address))
        with Job(tmp_path, spec) as job:
            job.until_step(20)
            job.process.send_signal(signal.SIGTERM)
            assert job.wait() == 143, job.output
        with Job(tmp_path, spec) as again:
            assert again.wait() == 0, again.output
    stop, end = [request.document for request in server.requests]
    assert (stop["outcome"], stop["code"]) == ("stopped", 143)
    assert stop["text"].startswith("digits was stopped after ")
    assert f"the checkpoint of step {stop['step']} is kept" in stop["text"]
    assert (end["outcome"], end["step"]) == ("done", 300)


def test_a_stopped_program_is_reported_with_its_last_figures_and_no_restart(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time, trainer\ntrainer.report(step=3, loss=0.5)\ntime.sleep(600)\n")
    with receiver() as server:
        spec: dict[str, Any] = {
            "name": "mine", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2},
            "program": ["python", "train.py"], "code": str(tmp_path), **told(server.address),
        }  # fmt: skip
        with Job(tmp_path, spec) as job:
            job.until_step(3)
            job.process.send_signal(signal.SIGTERM)
            assert job.wait() == 143, job.output
    (request,) = server.requests
    report = request.document
    assert (report["outcome"], report["figures"], report["restarts"]) == ("stopped", {"loss": 0.5}, 0)


@pytest.mark.slow
def test_a_chief_that_was_killed_before_reports_the_end_once(tmp_path: Path) -> None:
    with receiver() as server:
        with Job(tmp_path, parameter_server(workload=PACED, workers=1, **told(server.address))) as job:
            job.until_step(50)
            job.signal("chief:0", "pid")
            assert job.wait() == 0, job.output
        (request,) = server.requests
    report = request.document
    assert (report["outcome"], report["generations"], report["restarts"]) == ("done", 2, 1)
    lost = "chief:0 lost (its supervisor was restarted), re-forming"
    happened = ["generation 1 formed: 3 tasks", lost, "generation 2 formed: 3 tasks"]
    marks = json.loads(files.text(str(job.model_dir)))["history"]["marks"]
    for events in (job.result()["events"], marks):
        assert [event["text"] for event in events if event["kind"] in ("formed", "lost")] == happened


@pytest.mark.slow
def test_a_webhook_that_hangs_costs_the_deadline_and_changes_no_exit_code(tmp_path: Path) -> None:
    with receiver(0) as server:
        spec = mirrored(steps=20, workers=1, deadlines={"notify": 1}, **told(f"{server.address}/SECRET"))
        with Job(tmp_path, spec) as job:
            assert job.wait() == 0, job.output
        assert len(server.requests) == 1
    assert sum("warning: notify.webhook: no answer from 127.0.0.1" in line for line in job.lines) == 1
    assert "SECRET" not in job.output


COMMAND = """
import json, os, sys
report = json.load(sys.stdin)
found = {"report": report, "channel": sys.argv[1], "names": sorted(os.environ)}
open(os.environ["TRAINER_MODEL_DIR"] + "/told.json", "w").write(json.dumps(found))
print("told", report["outcome"])
"""


def test_the_command_of_a_programs_job_runs_beside_its_code_without_our_secret(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os, trainer\ntrainer.report(step=3, total=3, loss=0.5)\n")
    (tmp_path / "tell.py").write_text(COMMAND)
    notify = {"command": [sys.executable, "tell.py", "$(CHANNEL)"]}
    spec: dict[str, Any] = {
        "name": "mine", "strategy": "one_device", "program": ["python", "train.py"], "env": {"CHANNEL": "#ops"},
        "notify": notify, "model_dir": str(tmp_path / "run"), "code": str(tmp_path),
    }  # fmt: skip
    with Job(tmp_path, spec, environ={"TRAINER_SECRET": "0123"}) as job:
        assert job.wait() == 0, job.output
    found = json.loads((job.model_dir / "told.json").read_text())
    assert (found["report"]["figures"], found["channel"]) == ({"steps": 3, "loss": 0.5}, "#ops")
    assert not {"TRAINER_SECRET", "TRAINER_JOB"} & set(found["names"])
    assert any("told done" in line for line in job.lines)
    assert os.environ.get("TRAINER_SECRET") is None
