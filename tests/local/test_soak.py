"""Jobs, each with a task killed at a random moment: `make soak`.

TRAINER_SOAK_SEED repeats a run; TRAINER_SOAK_RUNS is how many jobs, by default 20.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.harness import Job
from tests.local.specs import mirrored, parameter_server

SEED = int(os.environ.get("TRAINER_SOAK_SEED") or time.time())
RUNS = int(os.environ.get("TRAINER_SOAK_RUNS") or 20)
STEPS = 2000
VICTIMS = [
    *((parameter_server, task) for task in ("worker:0", "worker:1", "ps:0", "chief:0")),
    *((mirrored, task) for task in ("worker:0", "worker:1")),
]


@pytest.mark.soak
@pytest.mark.timeout(180)
@pytest.mark.parametrize("run", range(RUNS))
def test_a_kill_at_a_random_moment(tmp_path: Path, run: int) -> None:
    random_ = random.Random(SEED * 1000 + run)
    make, task = VICTIMS[run % len(VICTIMS)]
    which = random_.choice(["child_pid", "pid"])
    seconds = random_.uniform(0, 12)
    print(f"TRAINER_SOAK_SEED={SEED} run {run}: {make.__name__} {task} {which} after {seconds:.1f} s of a cluster")
    with Job(tmp_path, make(steps=STEPS)) as job:
        # From before the first step to after the last: whatever the moment hits.
        formed = time.monotonic()
        job.until("the cluster has formed", lambda s: s["generation"] >= 1)
        while time.monotonic() - formed < seconds and job.process.poll() is None:
            time.sleep(0.02)
        killed = job.process.poll() is None and job.try_signal(task, which)
        print("killed" if killed else "the job was over before", job.status().get("step"))
        assert job.wait(150) == 0, job.output
    result = job.result()
    assert (result["status"], result["steps"]) == ("succeeded", STEPS)
    # The unbroken run reaches 0.97; 359 test digits leave a standard error of 0.009.
    assert result["test_accuracy"] >= 0.94
