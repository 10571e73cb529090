"""Compiled models on real clusters: with schedules, clipping and accumulated gradients, and with two optimizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.local.specs import EITHER, mirrored, parameter_server
from tests.local.test_exact_steps import ALL_KEPT, assert_exact
from tests.local.workloads import adversarial, scheduled
from tests.tools.harness import Job, saved_values

pytestmark = pytest.mark.slow


def scores(job: Job) -> dict[str, Any]:
    return {name: value for name, value in job.result().items() if name.startswith("test_")}


def spec_of(make: Any, workload: str, **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = make(workload=workload, **more)
    del spec["train"]["learning_rate"]
    return spec


def test_killed_and_resumed_it_ends_with_the_same_weights_and_figures(tmp_path: Path) -> None:
    spec = spec_of(mirrored, scheduled.__file__, steps=402, train={"checkpoint_steps": 50, "log_steps": 50})
    ends = []
    for name, victim in (("undisturbed", None), ("killed", "worker:1")):
        (folder := tmp_path / name).mkdir()
        with Job(folder, spec) as job:
            if victim:
                job.until_step(70)
                job.signal(victim)
            assert job.wait() == 0, job.output
        test = scores(job)
        assert set(test) == {"test_loss", "test_accuracy", "test_top3"}
        assert test["test_top3"] > 0.8
        curve = [json.loads(line) for line in (job.model_dir / "metrics.jsonl").read_text().splitlines()]
        figures = [[record[key] for key in ("step", "loss", "accuracy", "top3")] for record in curve]
        ends.append((saved_values(job.model_dir, 402), test, figures))
    (weights, test, figures), (other_weights, other_test, other_figures) = ends
    for name, value in weights.items():
        np.testing.assert_array_equal(value, other_weights[name], err_msg=name)
    assert test == other_test
    assert [row[0] for row in figures] == [row[0] for row in other_figures]
    np.testing.assert_allclose(figures, other_figures, rtol=1e-5)


def test_a_parameter_server_counts_its_steps_exactly(tmp_path: Path) -> None:
    spec = spec_of(parameter_server, scheduled.__file__, steps=600, train={**ALL_KEPT, "checkpoint_steps": 60})
    with Job(tmp_path, spec) as job:
        job.until_step(130)
        job.signal("worker:1")
        assert job.wait(200) == 0, job.output
    assert_exact(job, 600, 60)
    assert scores(job)["test_top3"] > 0.8


@pytest.mark.parametrize("make", EITHER)
def test_two_optimizers_train_and_resume(tmp_path: Path, make: Any) -> None:
    spec = spec_of(make, adversarial.__file__, train={**ALL_KEPT, "checkpoint_steps": 100})
    for steps in (200, 400):
        with Job(tmp_path, spec, f"train.steps={steps}") as job:
            assert job.wait() == 0, job.output
        found = saved_values(job.model_dir, steps)
        assert int(found["optimizer.000"]) == int(found["optimizer2.000"]) == steps
    assert scores(job) == {}
    assert "d_loss=" in job.output
