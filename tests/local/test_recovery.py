"""Killed, stopped and suspended processes of a job: what is no cell of tests/failures."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.local.specs import PACED, mirrored, parameter_server
from tests.tools.harness import Job, alive, saved_values

STEPS = 600


@pytest.mark.slow
def test_a_suspended_chief_considers_no_task_lost_or_hung(tmp_path: Path) -> None:
    deadlines = {"task_lost": 3, "hang": 6}
    with Job(tmp_path, mirrored(steps=30_000, workload=PACED, deadlines=deadlines)) as job:
        job.until_step(20)
        supervisor = job.pid("worker:0", "pid")
        os.kill(supervisor, signal.SIGSTOP)
        time.sleep(12)  # the pause is what this test is about
        os.kill(supervisor, signal.SIGCONT)
        step = job.until("the chief answers", lambda s: s.get("step"))["step"]
        status = job.until_step(step + 50)
        assert status["generation"] == 1, job.output
        assert " lost (" not in job.output


@pytest.mark.slow
def test_a_worker_that_is_killed_as_the_job_ends_changes_nothing(tmp_path: Path) -> None:
    with Job(tmp_path, parameter_server(steps=100)) as job:
        pid = job.pid("worker:1", "pid")
        job.until_printed("done: ")
        with contextlib.suppress(ProcessLookupError):  # it may have ended by now
            os.kill(pid, signal.SIGKILL)
        assert job.wait() == 0, job.output
    assert "has had no reply from its chief" not in job.output


@pytest.mark.slow
def test_a_killed_and_resumed_run_has_the_same_weights_bit_for_bit(tmp_path: Path) -> None:
    runs = {}
    for name in ("unbroken", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        with Job(folder, mirrored(steps=900, train={"checkpoint_steps": 70}, workload=PACED)) as job:
            if name == "killed":
                # Whatever step this falls on, the run goes back to the last multiple of 70.
                step = int.from_bytes(os.urandom(2), "big") % 500 + 100
                print("kill at or after step", step)
                job.until_step(step)
                job.signal("worker:1")
            assert job.wait() == 0, job.output
        assert job.result()["generations"] == (2 if name == "killed" else 1)
        runs[name] = saved_values(job.model_dir, 900)
    for name, value in runs["unbroken"].items():
        np.testing.assert_array_equal(value, runs["killed"][name], err_msg=name)


@pytest.mark.slow
def test_one_process_with_the_global_batch_has_the_same_loss_curve_as_two_with_half(tmp_path: Path) -> None:
    curves = {}
    for workers, batch in ((1, 64), (2, 32)):
        folder = tmp_path / str(workers)
        folder.mkdir()
        with Job(folder, mirrored(steps=60, workers=workers, train={"batch_size": batch, "log_steps": 5})) as job:
            assert job.wait() == 0, job.output
        records = [json.loads(line) for line in (job.model_dir / "metrics.jsonl").read_text().splitlines()]
        curves[workers] = {record["step"]: record["loss"] for record in records}
    assert list(curves[1]) == list(range(5, 65, 5))
    for step, loss in curves[1].items():
        assert curves[2][step] == pytest.approx(loss, rel=1e-4), step


def test_sigterm_keeps_a_checkpoint_of_the_current_step_and_a_rerun_resumes_there(tmp_path: Path) -> None:
    spec = mirrored(steps=STEPS, workload=PACED, train={"checkpoint_steps": 100_000})
    with Job(tmp_path, spec) as job:
        reached = job.until_step(200)["step"]
        asked = time.monotonic()
        job.process.send_signal(signal.SIGTERM)
        assert job.wait(30) == 143, job.output
        assert time.monotonic() - asked < 10
    kept = [int(path.name.removeprefix("step-")) for path in (job.model_dir / "checkpoints").iterdir()]
    assert len(kept) == 1
    assert reached <= kept[0] < STEPS
    reported = [line for line in job.lines if "stopped" in line]
    assert reported == [f"stopped by a signal; the checkpoint of step {kept[0]} is kept; the same command resumes"]
    with Job(tmp_path, spec) as again:
        assert again.wait() == 0, again.output
    assert f"resume_step={kept[0]}" in again.output
    assert again.result()["steps"] == STEPS


FORKS = """
import multiprocessing, os, pathlib, subprocess, sys, time
from trainer.workloads import datasets
PIDS = pathlib.Path({pids!r})

def reader(): time.sleep(600)

def data(shard):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=reader, daemon=True) for _ in range(2)]
    for worker in workers:
        worker.start()
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    workers += [subprocess.Popen(command), subprocess.Popen(command, start_new_session=True)]
    with PIDS.open("a") as file:
        file.write("".join(f"{{worker.pid}}\\n" for worker in workers))
    arrays = datasets.load("digits")
    return arrays[f"x_{{shard.split}}"], arrays[f"y_{{shard.split}}"]
"""


@pytest.mark.slow
@pytest.mark.parametrize("make", [mirrored, parameter_server])
def test_processes_that_a_workload_forks_end_with_its_child(tmp_path: Path, make: Any) -> None:
    """A fork holds TensorFlow's port; the chief's child and supervisor are killed in turn."""
    workload, pids = tmp_path / "forky.py", tmp_path / "pids"
    workload.write_text(FORKS.format(pids=str(pids)) + Path(PACED).read_text().replace("DATASET", "_DATASET"))
    with Job(tmp_path, make(steps=30_000, workload=str(workload))) as job:
        chief = next(iter(job.until_step(10)["tasks"]))
        for generation, which in enumerate(("child_pid", "pid"), 1):
            job.signal(chief, which)
            job.until_formed_again(generation)
        job.process.send_signal(signal.SIGTERM)
        assert job.wait(30) == 143, job.output
    started = [int(line) for line in pids.read_text().split()]
    assert len(started) >= 12, "four in each generation"
    assert not [pid for pid in started if alive(pid)]


@pytest.mark.slow
def test_an_import_that_takes_long_is_no_hang(tmp_path: Path) -> None:
    workload = tmp_path / "slow.py"
    # PyDLL keeps the GIL, as the loading of TensorFlow's libraries does, on a busy machine for seconds.
    workload.write_text(f"import ctypes\n{Path(PACED).read_text()}\nctypes.PyDLL(None).sleep(5)\n")
    with Job(tmp_path, mirrored(workers=1, workload=str(workload), deadlines={"hang": 4})) as job:
        job.until_step(100)
        job.signal("worker:0")
        assert job.wait() == 0, job.output
    assert job.result()["generations"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(("make", "victim"), [(mirrored, "worker:1"), (parameter_server, "ps:0")])
def test_warm_standby_takes_over(tmp_path: Path, make: Callable[..., dict[str, Any]], victim: str) -> None:
    """That it is fast is the benchmark's to say; here, that the spare is what continues."""
    with Job(tmp_path, make(steps=30_000, warm_standby=True, workload=PACED)) as job:
        before = job.until("spares are ready", lambda s: all(t.get("standby") for t in s["tasks"].values()))
        job.signal(victim)
        after = job.until(
            "generation 2 steps", lambda s: s["generation"] == 2 and (s.get("step") or 0) > before["step"]
        )
        assert not any(t.get("standby") for t in after["tasks"].values()), "the spares are what runs"
        job.process.send_signal(signal.SIGTERM)
        assert job.wait(30) == 143, job.output
