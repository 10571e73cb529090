"""Checkpoints that take a while to write."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.local.specs import DEADLINES
from tests.tools.harness import Job, saved_values
from trainer.model_dir import checkpoint

STEPS, EVERY = 60, 10


def spec(**more: Any) -> dict[str, Any]:
    return {
        "name": "large",
        "strategy": "one_device",
        "workload": str(Path(__file__).parent / "workloads/large.py"),
        "train": {"steps": STEPS, "batch_size": 8, "checkpoint_steps": EVERY, "seed": 3, "deterministic": True},
        "warm_standby": False,
        "check_exports": False,
        "deadlines": DEADLINES,
        **more,
    }


def until_it_writes(job: Job, after: int) -> None:
    """Until a checkpoint of a step after this one is partly written."""
    folder, deadline = checkpoint.folder(job.model_dir), time.monotonic() + 120
    while not any(
        int(path.parent.name.split("-")[2]) > after and path.stat().st_size > 1 << 20
        for path in folder.glob(".tmp-step-*/variables.npz")
    ):
        assert time.monotonic() < deadline, job.output
        assert not job.over(), job.output


@pytest.mark.slow
def test_a_kill_while_a_checkpoint_is_written_changes_no_bit_of_the_result(tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    with Job(tmp_path / "whole", spec()) as whole:
        assert whole.wait() == 0, whole.output
    with Job(tmp_path / "killed", spec()) as job:
        until_it_writes(job, EVERY)
        job.signal("worker:0")
        assert job.wait() == 0, job.output
    result = job.result()
    assert (result["steps"], result["generations"]) == (STEPS, 2)
    expected, found = (saved_values(each.model_dir, STEPS) for each in (whole, job))
    assert {name: value.tobytes() for name, value in found.items()} == {
        name: value.tobytes() for name, value in expected.items()
    }
    left = [path.name for path in checkpoint.folder(job.model_dir).iterdir()]
    assert all(name.startswith("step-") for name in left), left
