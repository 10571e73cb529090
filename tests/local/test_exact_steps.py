"""Under parameter_server a checkpoint is the state of exactly the step that it names, whichever task dies."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.local.specs import PACED, parameter_server
from tests.tools.harness import Job

pytestmark = pytest.mark.slow

ALL_KEPT = {"keep_checkpoints": 1000}


def optimizer_steps(model_dir: Path) -> dict[int, int]:
    """The step that each checkpoint names, and the number of updates that its optimizer counted."""
    found = {}
    for folder in sorted((model_dir / "checkpoints").glob("step-*")):
        meta = json.loads((folder / "meta.json").read_text())
        assert folder.name == f"step-{meta['step']:08d}"
        with np.load(folder / "variables.npz") as archive:
            counts = [archive[n] for n, v in meta["variables"].items() if v["path"].endswith("iteration")]
        found[meta["step"]] = max(int(count) for count in counts)  # a LossScaleOptimizer has an unused one of its own
    return found


def assert_exact(job: Job, steps: int, every: int) -> None:
    found = optimizer_steps(job.model_dir)
    assert all(step == count for step, count in found.items()), found
    assert list(found) == [*range(every, steps, every), steps], found
    assert job.result()["steps"] == steps


@pytest.mark.parametrize(
    "more",
    [
        {"workload": "digits", "train": {"optimizer": "sgd", "steps_per_call": 7}},
        {"workload": "digits", "train": {"mixed_precision": "float16", "steps_per_call": 3}},
    ],
    ids=["sgd", "float16"],
)
def test_each_checkpoint_is_the_state_at_the_step_that_it_names(tmp_path: Path, more: dict[str, Any]) -> None:
    train = {**ALL_KEPT, "checkpoint_steps": 45, **more["train"]}
    with Job(tmp_path, parameter_server(steps=400, workers=3, **{**more, "train": train})) as job:
        assert job.wait() == 0, job.output
    assert_exact(job, 400, 45)


def test_after_kills_of_every_kind_of_task_the_steps_are_exact(tmp_path: Path) -> None:
    spec = parameter_server(steps=900, workload=PACED, train={**ALL_KEPT, "checkpoint_steps": 60})
    with Job(tmp_path, spec) as job:
        for victim in ("worker:1", "chief:0", "worker:0", "ps:0", "worker:1"):
            step = job.until("it steps", lambda s: s["phase"] == "running" and s["figures"].get("loss"))["step"]
            job.until_step(step + 60)  # past a checkpoint, wherever that leaves it
            old = job.pid(victim)
            job.signal(victim)
            job.until(f"{victim} is back", lambda s: s["tasks"][victim].get("child_pid") not in (None, old))  # noqa: B023
        assert job.wait(200) == 0, job.output
    assert_exact(job, 900, 60)


def test_sigterm_keeps_the_state_at_the_step_that_it_names(tmp_path: Path) -> None:
    spec = parameter_server(steps=30_000, workload=PACED, train={"checkpoint_steps": 100_000})
    with Job(tmp_path, spec) as job:
        job.until_step(100)
        job.process.send_signal(signal.SIGTERM)
        assert job.wait(30) == 143, job.output
    ((step, count),) = optimizer_steps(job.model_dir).items()
    assert step == count
