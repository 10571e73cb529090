"""float16 on several replicas: a batch that overflows on one of them is skipped by all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.local.specs import DEADLINES
from tests.tools.harness import Job

pytestmark = pytest.mark.slow

SPIKY = str(Path(__file__).parent / "workloads/spiky.py")
TRAIN = {"batch_size": 16, "mixed_precision": "float16", "learning_rate": 1e-4, "checkpoint_steps": 60, "log_steps": 60}
TWO_DEVICES = {"worker": {"cpu_devices": 2}}


def spec(strategy: str, tasks: dict[str, Any], steps: int = 150, **more: Any) -> dict[str, Any]:
    common = {"name": "f16", "workload": SPIKY, "warm_standby": False, "max_restarts": 1, "strategy": strategy}
    deadlines, train = {**DEADLINES, "progress": 30}, {**TRAIN, "steps": steps}
    return {**common, "tasks": tasks, "train": train, "deadlines": deadlines, **more}


def optimizer(model_dir: Path, step: int) -> dict[str, Any]:
    """The optimizer's scalars by name, and all variables of the checkpoint."""
    folder = model_dir / "checkpoints" / f"step-{step:08d}"
    described = json.loads((folder / "meta.json").read_text())["variables"]
    with np.load(folder / "variables.npz") as archive:
        return {f"{name}:{described[name]['path']}": archive[name] for name in archive.files}


def scalar(values: dict[str, Any], name: str) -> float:
    (found,) = [value for path, value in values.items() if path.endswith(f"/{name}")]
    return float(found)


@pytest.mark.parametrize(
    ("strategy", "tasks"),
    [
        ("multi_worker_mirrored", {"worker": 3}),
        ("mirrored", TWO_DEVICES),
        ("parameter_server", {"worker": 2, "ps": 1}),
    ],
)
def test_a_step_that_overflows_is_skipped_by_all_and_not_counted(
    tmp_path: Path, strategy: str, tasks: dict[str, Any]
) -> None:
    with Job(tmp_path, spec(strategy, tasks)) as job:
        assert job.wait() == 0, job.output
    result = job.result()
    assert (result["steps"], result["generations"]) == (150, 1)
    values = optimizer(job.model_dir, 150)
    assert scalar(values, "iteration") == 150
    assert scalar(values, "skipped") == result["skipped_batches"] >= 5
    assert 1 <= scalar(values, "dynamic_scale") < 2**15
    assert all(np.isfinite(value).all() for value in values.values())


def test_a_resumed_run_reads_on_after_the_skipped_batches_and_has_the_same_weights(tmp_path: Path) -> None:
    runs = {}
    tasks = {"worker": {"replicas": 2, "cpu_devices": 2}}
    wanted = spec("multi_worker_mirrored", tasks, communication={"gradients": "bfloat16"})
    for name, parts in (("unbroken", [150]), ("resumed", [60, 150])):
        (folder := tmp_path / name).mkdir()
        for steps in parts:
            with Job(folder, wanted, f"train.steps={steps}") as job:
                assert job.wait() == 0, job.output
        runs[name] = optimizer(job.model_dir, 150)
    assert "resume_step=60" in job.output
    assert scalar(runs["unbroken"], "skipped") >= 5
    for name, value in runs["unbroken"].items():
        np.testing.assert_array_equal(value, runs["resumed"][name], err_msg=name)


@pytest.mark.parametrize(
    ("strategy", "tasks"), [("multi_worker_mirrored", {"worker": 2}), ("parameter_server", {"worker": 2, "ps": 1})]
)
def test_a_job_whose_every_batch_overflows_ends(tmp_path: Path, strategy: str, tasks: dict[str, Any]) -> None:
    with Job(tmp_path, spec(strategy, tasks, settings={"weight": 1e30})) as job:
        assert job.wait() == 13, job.output
    assert "batches in a row after step 0 were not finite, at last with a loss scale of 1; set bfloat16" in job.output
