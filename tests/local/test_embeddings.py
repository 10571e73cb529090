"""Embeddings that are looked up by constants, on several replicas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.local.specs import mirrored
from tests.local.workloads import negatives
from tests.tools.harness import Job

pytestmark = pytest.mark.slow
ONE_TASK = {"strategy": "mirrored", "tasks": {"worker": {"replicas": 1, "cpu_devices": 2}}}


@pytest.mark.parametrize(("words", "more"), [("random", {}), ("of a call", ONE_TASK)])
def test_random_constants_end_the_job_before_its_first_step(tmp_path: Path, words: str, more: dict[str, Any]) -> None:
    spec = {**mirrored(steps=100, workload=negatives.__file__, settings={"words": words}), **more}
    with Job(tmp_path, spec) as job:
        assert job.wait() == 2, job.output
    assert "replicas look up different constant rows of an Embedding, as by random numbers of NumPy's" in job.output
    assert [path.read_text() for path in job.model_dir.glob("metrics.jsonl")] in ([], [""])


def test_with_a_seed_it_trains_and_each_task_knows_the_size_of_its_batch(tmp_path: Path) -> None:
    with Job(tmp_path, mirrored(steps=100, workload=negatives.__file__)) as job:
        assert job.wait() == 0, job.output
    curve = [json.loads(line) for line in (job.model_dir / "metrics.jsonl").read_text().splitlines()]
    assert {record["sized"] for record in curve} == {1.0}
