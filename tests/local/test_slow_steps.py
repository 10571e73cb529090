"""SIGTERM saves a checkpoint even if a step takes long."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.local.specs import mirrored
from tests.tools.harness import Job

pytestmark = pytest.mark.slow

SLOW = str(Path(__file__).parent / "workloads/slow.py")


@pytest.mark.parametrize(("workers", "settings"), [(1, {"seconds": 1.2}), (2, {"seconds": 2.4})])
def test_sigterm_saves_the_step_under_way(tmp_path: Path, workers: int, settings: dict[str, Any]) -> None:
    spec = mirrored(steps=1000, workers=workers, workload=SLOW, settings=settings)
    with Job(tmp_path, spec) as job:
        reached = job.until_step(5)["step"]
        asked = time.monotonic()
        job.process.send_signal(signal.SIGTERM)
        assert job.wait(30) == 143, job.output
        assert time.monotonic() - asked < 10
    (kept,) = [int(path.name.removeprefix("step-")) for path in (job.model_dir / "checkpoints").iterdir()]
    assert reached <= kept <= reached + 3
    assert f"checkpoint of step {kept}" in job.output or f"step {kept}" in job.output


def test_a_step_that_takes_longer_than_a_stop_may_is_logged_with_the_fix(tmp_path: Path) -> None:
    spec = mirrored(steps=4, workers=1, workload=SLOW, settings={"seconds": 2.5}, deadlines={"stop": 2})
    with Job(tmp_path, spec) as job:
        assert job.wait() == 0, job.output
    reported = [line for line in job.lines if "longer than deadlines.stop (2 s): SIGTERM cannot save" in line]
    assert len(reported) == 1
