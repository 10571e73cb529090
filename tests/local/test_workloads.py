"""Workload files as users write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.local.specs import mirrored, parameter_server
from tests.tools.harness import Job

pytestmark = pytest.mark.slow

ADAPTED = str(Path(__file__).parent / "workloads/adapted.py")

GRAPH = """import tensorflow as tf
TWO = tf.constant(2.0)
def compute(cluster):
    with tf.device("/job:worker/task:0/device:CPU:0"):
        return {"four": float(TWO * TWO)}
"""


@pytest.mark.parametrize("make", [mirrored, parameter_server])
def test_tensorflow_values_and_adapt_at_the_top_of_a_workload(tmp_path: Path, make: Any) -> None:
    """Also in a child that stood by."""
    with Job(tmp_path, make(workload=ADAPTED, workers=2, steps=200, warm_standby=True)) as job:
        assert job.wait() == 0, job.output
    assert job.result()["test_loss"] < 3, "learned: it begins at twice ln 10 and more"


def test_tensorflow_values_at_the_top_of_a_graph_workload(tmp_path: Path) -> None:
    workload = tmp_path / "four.py"
    workload.write_text(GRAPH)
    spec = {"name": "four", "strategy": "graph", "workload": str(workload), "tasks": {"worker": 1}}
    with Job(tmp_path, spec) as job:
        assert job.wait() == 0, job.output
    assert job.result()["result"] == {"four": 4.0}
