"""State that layers update themselves is the same on all tasks; frozen state does not change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.local.specs import mirrored
from tests.local.workloads import frozen
from tests.tools.harness import Job

pytestmark = pytest.mark.slow


def values(model_dir: Path, step: int) -> dict[str, Any]:
    folder = model_dir / "checkpoints" / f"step-{step:08d}"
    described = json.loads((folder / "meta.json").read_text())["variables"]
    with np.load(folder / "variables.npz") as archive:
        return {f"{name}:{described[name]['path']}": archive[name] for name in described}


def test_hundreds_of_checkpoints_leave_frozen_weights_alone_and_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    spec = mirrored(steps=450, workers=3, workload=frozen.__file__, train={"checkpoint_steps": 2, "batch_size": 8})
    runs = {}
    for name, parts in (("unbroken", [450]), ("resumed", [150, 450])):
        (folder := tmp_path / name).mkdir()
        for steps in parts:
            with Job(folder, spec, f"train.steps={steps}") as job:
                assert job.wait() == 0, job.output
        runs[name] = values(job.model_dir, 450)
    (weights,) = [value for name, value in runs["unbroken"].items() if name.endswith("frozen/kernel")]
    np.testing.assert_array_equal(weights, np.array(frozen.initializer()((64, 64))))
    (shift,) = [value for name, value in runs["unbroken"].items() if "seen" in name and value.shape == (64,)]
    np.testing.assert_array_equal(shift, np.full(64, 0.1, np.float32))
    (mean,) = [value for name, value in runs["unbroken"].items() if name.endswith("seen/mean")]
    assert 0 < float(mean) < 10
    for name, value in runs["unbroken"].items():
        np.testing.assert_array_equal(value, runs["resumed"][name], err_msg=name)
