"""`tracking` of real jobs at a real MLflow server, as MLflow's own client reads it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.local.specs import PACED, mirrored, parameter_server
from tests.tools.harness import TRAINER, Job
from trainer.job.errors import Exit
from trainer.model_dir import journal, layout
from trainer.protocol import facts
from trainer.protocol.facts import Began, Ended, Fact

MLFLOW = Path(__file__).parents[2] / ".venv-mlflow" / "bin"
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
START_SECONDS = 240
"""MLflow imports a hundred packages, and makes its database in some hundred steps."""
pytestmark = [
    pytest.mark.part("programs"),
    pytest.mark.skipif(not MLFLOW.exists(), reason="make programs-setup"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an MLflow server that keeps its runs in SQLite."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    words += [
        "--backend-store-uri",
        f"sqlite:///{folder}/runs.db",
        "--artifacts-destination",
        str(folder / "artifacts"),
    ]
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(MLFLOW / "mlflow"), *words], stdout=output, stderr=output, env={**os.environ, **QUIET},
            start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def runs(server: str, experiment: str) -> list[dict[str, Any]]:
    words = [str(MLFLOW / "python"), str(Path(__file__).parent / "mlflow_runs.py"), server, experiment]
    ended = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **QUIET}, timeout=240)
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


def tracked(address: str, experiment: str) -> dict[str, Any]:
    # A busy machine may take long to answer.
    return {"tracking": {"mlflow": address, "experiment": experiment}, "deadlines": {"notify": 60}}


def curve(job: Job) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.model_dir / "metrics.jsonl").read_text().splitlines()]


def test_a_run_has_the_curve_the_settings_and_the_end_of_its_job(tmp_path: Path, server: str) -> None:
    spec = mirrored(steps=60, workers=1, train={"log_steps": 5}, **tracked(server, "Zählung/数"))
    with Job(tmp_path, spec) as job:
        assert job.wait() == 0, job.output
    (run,) = runs(server, "Zählung/数")
    assert (run["name"], run["status"]) == ("digits", "FINISHED")
    records = curve(job)
    for name in ("loss", "accuracy", "examples_per_second"):
        sent = [(step, value, time) for step, value, time in run["metrics"][name]]
        assert sent == [(each["step"], each[name], round(each["time"] * 1000)) for each in records]
    assert run["metrics"]["test_accuracy"][0][:2] == [60, job.result()["test_accuracy"]]
    assert run["ended"] >= run["metrics"]["loss"][-1][2]
    assert run["params"]["train.steps"] == "60"
    assert run["params"]["train.learning_rate"] == "0.001"
    assert run["tags"]["trainer.exit_code"] == "0"
    assert sum(f"{server}/#/experiments/" in line and run["id"] in line for line in job.lines) == 1
    assert "warning: tracking" not in job.output


@pytest.mark.slow
def test_a_job_whose_chief_was_killed_is_one_run_without_a_step_twice(tmp_path: Path, server: str) -> None:
    spec = parameter_server(workers=1, train={"log_steps": 10, "checkpoint_steps": 50}, workload=PACED)
    with Job(tmp_path, {**spec, **tracked(server, "killed")}) as job:
        job.until_step(130)
        job.signal("chief:0", "pid")
        assert job.wait() == 0, job.output
    (run,) = runs(server, "killed")
    assert (run["status"], run["tags"]["trainer.generations"]) == ("FINISHED", "2")
    steps = [step for step, _, _ in run["metrics"]["loss"]]
    assert steps == sorted(set(steps))
    assert (min(steps) <= 20, max(steps)) == (True, 400)


@pytest.mark.slow
def test_a_stopped_job_that_is_resumed_with_more_steps_is_the_same_run(tmp_path: Path, server: str) -> None:
    spec = mirrored(steps=200, workers=1, train={"log_steps": 10}, workload=PACED, **tracked(server, "stopped"))
    with Job(tmp_path, spec) as job:
        job.until_step(30)
        job.process.send_signal(signal.SIGTERM)
        assert job.wait() == 143, job.output
    (stopped,) = runs(server, "stopped")
    assert (stopped["status"], stopped["tags"]["trainer.exit_code"]) == ("KILLED", "143")
    with Job(tmp_path, spec, "train.steps=220") as again:
        assert again.wait() == 0, again.output
    (run,) = runs(server, "stopped")
    assert (run["id"], run["status"], run["tags"]["trainer.exit_code"]) == (stopped["id"], "FINISHED", "0")
    assert run["params"]["train.steps"] == "200"
    assert run["tags"]["trainer.changed"] == "train.steps: 200 -> 220"
    assert [step for step, _, _ in run["metrics"]["loss"]] == [record["step"] for record in curve(again)]
    assert run["ended"] > stopped["ended"]


@pytest.mark.slow
def test_a_job_that_fails_is_a_failed_run_with_the_reason(tmp_path: Path, server: str) -> None:
    workload = tmp_path / "broken.py"
    workload.write_text("def model():\n    raise ValueError('é no layers')\n\ndef data(shard):\n    return None\n")
    with Job(tmp_path, mirrored(workers=1, workload=str(workload), **tracked(server, "failed"))) as job:
        code = job.wait()
    (run,) = runs(server, "failed")
    assert (run["status"], run["tags"]["trainer.exit_code"]) == ("FAILED", str(code))
    assert "é no layers" in run["tags"]["trainer.message"]


@contextlib.contextmanager
def forwarded(port: int, server: str) -> Iterator[None]:
    """Passes what comes to a port of this machine on to the server."""
    there = int(server.rpartition(":")[2])

    def copy(source: socket.socket, sink: socket.socket) -> None:
        with source, contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                ours, _ = listener.accept()
                theirs = socket.create_connection(("127.0.0.1", there))
                for pair in ((ours, theirs), (theirs, ours)):
                    copying.append(threading.Thread(target=copy, args=pair))
                    copying[-1].start()

    copying: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", port)) as listener:
        accepting = threading.Thread(target=accept, args=(listener,))
        accepting.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        for each in (accepting, *copying):
            each.join(30)


@pytest.mark.slow
def test_a_server_that_comes_late_gets_all_that_it_has_missed(tmp_path: Path, server: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spec = mirrored(steps=2000, workers=1, train={"log_steps": 10}, workload=PACED)
    with Job(tmp_path, {**spec, **tracked(f"http://127.0.0.1:{port}", "late")}) as job:
        job.until_printed(f"track | warning: tracking.mlflow: 127.0.0.1:{port} refused the connection")
        job.until_step(50)
        with forwarded(port, server):
            job.until_printed(f"tracking.mlflow: 127.0.0.1:{port} answers again")
            assert job.wait() == 0, job.output
    assert sum("warning: tracking.mlflow" in line for line in job.lines) == 1
    (run,) = runs(server, "late")
    assert run["status"] == "FINISHED"
    assert [step for step, _, _ in run["metrics"]["loss"]] == [record["step"] for record in curve(job)]


@pytest.mark.slow
def test_a_program_is_tracked_by_what_it_reports(tmp_path: Path, server: str) -> None:
    (tmp_path / "train.py").write_text(
        "import time, trainer\n"
        "for step in range(1, 4):\n    trainer.report(step=step, total=3, loss=1 / step)\n    time.sleep(2)\n"
    )
    spec = {
        "name": "mine", "strategy": "one_device", "program": ["python", "train.py"], "code": str(tmp_path / "train.py"),
        **tracked(server, "program"),
    }  # fmt: skip
    with Job(tmp_path, spec) as job:
        assert job.wait() == 0, job.output
    (run,) = runs(server, "program")
    assert run["status"] == "FINISHED"
    assert [(step, value) for step, value, _ in run["metrics"]["loss"]] == [(1, 1), (2, 1 / 2), (3, 1 / 3)]


def left(folder: Path, address: str, *story: Fact, code: int = 0, step: int = 2, **spec: Any) -> Path:
    """A model_dir as a chief leaves it behind."""
    model_dir = folder / "run"
    model_dir.mkdir()
    whole = {"name": "j", "strategy": "one_device", "workload": "digits", "tracking": {"mlflow": address}, **spec}
    (layout.make_own(model_dir) / "spec.json").write_text(json.dumps(whole))
    happened = [Began("1"), *story, Ended(code, "" if code == 0 else "é\n" * 9000)]
    lines = [facts.entry(1e9 + i, each, 1, step).document() for i, each in enumerate(happened)]
    journal.append(str(model_dir), 1, lines)
    return model_dir


def track(model_dir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TRAINER, "track", str(model_dir), *words], capture_output=True, text=True, timeout=240)


def test_any_name_number_and_amount_is_taken(tmp_path: Path, server: str) -> None:
    """Also what no model logs today: thousands of metrics, NaN, names that MLflow refuses."""
    figures = {f"layer_{i}/norm": i / 7 for i in range(3000)}
    odd = {"auc@1": math.nan, "auc_1": math.inf, "/../é": -math.inf, "x" * 300: 1e-300, "": 2.0, "a b.c-d": 1e299}
    lines = [json.dumps({"step": step, **figures, **odd, "time": 1e9 + 60 * step}) for step in (1, 2)]
    settings = {f"s{i}": "é" * 300 for i in range(120)}
    model_dir = left(tmp_path, server, code=Exit.DIVERGED, settings=settings)
    (model_dir / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    done = track(model_dir)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = runs(server, "j")
    assert run["status"] == "FAILED"
    sent = run["metrics"]
    assert len(sent) == 3006
    assert all(sent[name] == [[s, value, 1000 * (10**9 + 60 * s)] for s in (1, 2)] for name, value in figures.items())
    assert math.isnan(sent["auc_1"][0][1])
    assert sent["é"][0][1] < -1e300
    assert sent["a b.c-d"][0][1] == 1e299
    assert len(run["params"]) > 120


@pytest.mark.slow
def test_a_job_that_has_ended_is_sent_again_without_a_copy_of_anything(tmp_path: Path, server: str) -> None:
    model_dir = left(tmp_path, "http://127.0.0.1:1", name="again")
    (model_dir / "metrics.jsonl").write_text('{"step": 1, "loss": 3.0, "time": 1.0}\n')
    (model_dir / "export").mkdir()
    (model_dir / "export" / "model.keras").write_text("weights")
    words = ("--mlflow", server, "--experiment", "again", "--register", "digits of again")
    for _ in range(2):
        done = track(model_dir, *words)
        assert (done.returncode, "warning" in done.stdout) == (0, False), done.stdout + done.stderr
    (run,) = runs(server, "again")
    assert (run["status"], run["metrics"]["loss"]) == ("FINISHED", [[1, 3.0, 1000]])
    spec = yaml.safe_load(run["artifacts"].pop("spec.yaml"))
    assert (spec["name"], spec["tracking"]["mlflow"]) == ("again", "http://127.0.0.1:1")
    kept = {"journal.jsonl": layout.journal(model_dir).read_text(), "export/model.keras": "weights"}
    assert run["artifacts"] == kept
    assert run["models"] == {"digits of again": ["1"]}


@pytest.mark.slow
def test_a_run_that_is_deleted_meanwhile_is_made_again_with_all_its_figures(tmp_path: Path, server: str) -> None:
    model_dir = left(tmp_path, server, name="deleted")
    curve = model_dir / "metrics.jsonl"
    curve.write_text('{"step": 1, "loss": 3.0, "time": 1.0}\n')
    with subprocess.Popen(
        [*TRAINER, "track", str(model_dir), "--keep"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        assert "tracking.mlflow: http" in process.stdout.readline()
        deadline = time.monotonic() + 120
        while "trainer.artifacts" not in (first := runs(server, "deleted")[0])["tags"]:  # the last that it sends
            assert time.monotonic() < deadline, first
        body = json.dumps({"run_id": first["id"]}).encode()
        request = urllib.request.Request(
            f"{server}/api/2.0/mlflow/runs/delete", body, {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request).close()
        with curve.open("a") as file:
            file.write('{"step": 2, "loss": 2.0, "time": 2.0}\n')
        assert "is gone; another one is made" in process.stdout.readline()
        assert "answers again" in process.stdout.readline()
        process.terminate()
        assert process.wait(60) == 0
    (run,) = runs(server, "deleted")
    assert (run["status"], [step for step, _, _ in run["metrics"]["loss"]]) == ("FINISHED", [1, 2])


@pytest.mark.slow
def test_a_path_that_the_server_does_not_have_is_named(tmp_path: Path, server: str) -> None:
    done = track(left(tmp_path, f"{server}/elsewhere", deadlines={"notify": 1}))
    why = "answers 404; its answer is none of MLflow's; tracking.mlflow is the server's address with its path"
    assert (done.returncode, why in done.stdout) == (Exit.TARGET, True), done.stdout + done.stderr


@pytest.mark.slow
def test_a_server_that_hangs_delays_no_step_and_changes_no_exit_code(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        spec = {**mirrored(steps=40, workers=1), **tracked(address, "hung"), "deadlines": {"notify": 1}}
        with Job(tmp_path, spec) as job:
            assert job.wait() == 0, job.output
    assert job.result()["steps"] == 40
    assert sum("warning: tracking.mlflow: the run may lack its end" in line for line in job.lines) == 1
