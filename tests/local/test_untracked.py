"""State that Keras does not list is equal on all tasks, survives a stop, and each task draws its own random numbers."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.local.specs import mirrored
from tests.local.test_layer_state import values
from tests.local.workloads import untracked
from tests.tools.harness import Job

pytestmark = pytest.mark.slow


def test_two_tasks_agree_on_it_whatever_callbacks_do_and_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    spec = mirrored(steps=40, workload=untracked.__file__, train={"batch_size": 12, "log_steps": 1})
    runs = {}
    for name, parts in (("unbroken", [40]), ("resumed", [20, 40])):
        (folder := tmp_path / name).mkdir()
        for steps in parts:
            with Job(folder, spec, f"train.steps={steps}") as job:
                assert job.wait() == 0, job.output
        runs[name] = values(job.model_dir, 40)
    assert any(name.startswith("untracked.") for name in runs["unbroken"])
    for name, value in runs["unbroken"].items():
        np.testing.assert_array_equal(value, runs["resumed"][name], err_msg=name)

    lines = [json.loads(line) for line in (job.model_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["weight"] for line in lines] == [0.25 * (1 + i // 10) for i in range(40)]  # the mean of both tasks
    assert [line["seen"] for line in lines] == [i + 1 for i in range(40)]
    for figure in ("seeded", "unseeded", "constant", "tensorflow"):
        assert all(line[figure] != 0 for line in lines), figure
    assert len({line["seeded"] for line in lines}) == len(lines)
