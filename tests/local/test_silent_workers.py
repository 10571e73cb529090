"""A ps-worker whose supervisor and child are suspended, as on a node that is cut off: no connection is reset."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.specs import PACED, parameter_server
from tests.local.test_exact_steps import ALL_KEPT, assert_exact
from tests.tools.harness import Job

pytestmark = pytest.mark.slow

SPEC = parameter_server(
    steps=900, workload=PACED, train={**ALL_KEPT, "checkpoint_steps": 100}, deadlines={"task_lost": 3, "progress": 60}
)


@contextlib.contextmanager
def frozen(job: Job, task: str) -> Iterator[None]:
    pids = [job.pid(task, "pid"), job.pid(task)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("step", [250, 880], ids=["amid", "at-the-end"])
def test_the_others_go_on_and_end_without_it(tmp_path: Path, step: int) -> None:
    with Job(tmp_path, SPEC) as job:
        job.until_step(step)
        with frozen(job, "worker:1"):
            job.until_printed("done: ")
            assert job.wait() == 0, job.output
    assert_exact(job, 900, 100)
    assert "worker:1 lost (silent for 3 s); the others continue" in job.output
    assert job.result()["generations"] == 1


@pytest.mark.parametrize("seconds", [1, 5, 12])
def test_it_may_come_back(tmp_path: Path, seconds: float) -> None:
    with Job(tmp_path, {**SPEC, "train": {**SPEC["train"], "steps": 2500}}) as job:
        before = job.until_step(250)["tasks"]["worker:1"]
        with frozen(job, "worker:1"):
            time.sleep(seconds)
        if seconds > 3:
            job.until("it has a new child", lambda s: s["tasks"]["worker:1"]["child_pid"] != before["child_pid"])
        after = job.status()["tasks"]["worker:1"]["step"]
        job.until("it steps", lambda s: s["tasks"]["worker:1"]["step"] > after)
        assert job.wait() == 0, job.output
    assert_exact(job, 2500, 100)
    assert job.result()["generations"] == 1


def test_a_silent_ps_starts_a_new_generation_once_it_is_back(tmp_path: Path) -> None:
    with Job(tmp_path, SPEC) as job:
        job.until_step(250)
        with frozen(job, "ps:0"):
            job.until_printed("ps:0 lost (silent for 3 s), re-forming", timeout=60)
        assert job.wait() == 0, job.output
    assert_exact(job, 900, 100)
    assert job.result()["generations"] == 2
