"""Gradients of multi_worker_mirrored between processes: by trainer's ring, or by TensorFlow's."""

from pathlib import Path
from typing import Any

import pytest

from tests.tools.harness import Job

WORKLOAD = """
import threading

import keras


def model():
    print("connections of a ring:", [each.name for each in threading.enumerate()].count("ring"), flush=True)
    return keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(10)])


DATASET = "digits"
"""


HEADS = """
import keras

NAMES = {"color", "shape", "size", "weight", "price", "age"}


def model():
    print("order of the layers:", *NAMES, flush=True)
    x = keras.Input((8, 8))
    heads = [keras.layers.Dense(10, name=name)(keras.layers.Flatten()(x)) for name in NAMES]
    return keras.Model(x, keras.layers.Average()(heads))


DATASET = "digits"
"""


def figures(folder: Path, implementation: str, workload: str = WORKLOAD) -> tuple[dict[str, Any], str]:
    (folder / "run").mkdir(parents=True)
    (folder / "mine.py").write_text(workload)
    spec = {
        "name": "ring", "strategy": "multi_worker_mirrored", "workload": str(folder / "mine.py"),
        "tasks": {"worker": 3}, "communication": {"implementation": implementation}, "train": {"steps": 40, "seed": 3},
        "warm_standby": False,
    }  # fmt: skip
    with Job(folder / "run", spec) as job:
        assert job.wait() == 0, job.output
        logs = "".join(path.read_text() for path in (folder / "run").rglob("*.log"))
        return job.result(), job.output + logs


@pytest.mark.slow
def test_trainers_ring_and_tensorflows_train_the_same(tmp_path: Path) -> None:
    (ours, log), (theirs, other) = figures(tmp_path / "auto", "auto"), figures(tmp_path / "ring", "ring")
    assert "connections of a ring: 2" in log
    assert "connections of a ring: 0" in other
    assert "connections of a ring: 2" not in other
    assert ours["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-5)


@pytest.mark.slow
def test_layers_of_a_set_have_one_order_in_all_tasks(tmp_path: Path) -> None:
    """All have the same size: the sums of different layers' gradients would be no error."""
    _, log = figures(tmp_path, "auto", HEADS)
    orders = {line.partition("order of the layers:")[2] for line in log.splitlines() if "order of the layers:" in line}
    assert len(orders) == 1
