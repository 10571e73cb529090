"""Graph jobs on real servers: the output of the classic tutorials, and the devices that computed it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.local.specs import DEADLINES
from tests.tools.harness import Job

ROOT = Path(__file__).parents[2]


def spec_of(name: str, **more: Any) -> dict[str, Any]:
    """One of examples, with the deadlines of tests."""
    spec = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text())
    return {**spec, "warm_standby": False, "deadlines": DEADLINES, **more}


def computed(tmp_path: Path, name: str, *sets: str, **more: Any) -> tuple[dict[str, Any], str]:
    """What a job's compute() gave, and all that was printed."""
    with Job(tmp_path, spec_of(name, **more), *sets) as job:
        assert job.wait() == 0, job.output
    result = job.result()
    assert (result["status"], result["strategy"], result["generations"]) == ("succeeded", "graph", 1)
    found: dict[str, Any] = result["result"]
    return found, job.output


def test_sum_is_238_and_each_part_ran_where_it_was_placed(tmp_path: Path) -> None:
    found, output = computed(tmp_path, "sum")
    assert found == {
        "y": 238,
        "ran_on": {
            "y1": "/job:local/task:0/device:CPU:0",
            "y2": "/job:local/task:1/device:CPU:0",
            "y": "/job:chief/task:0/device:CPU:0",
        },
    }
    assert "chief:0 | y = 238 on /job:chief/task:0/device:CPU:0" in output
    assert "task=worker:1 strategy=graph job_name=local servers=2" in output


@pytest.mark.slow
def test_a_result_and_a_line_of_many_megabytes_arrive(tmp_path: Path) -> None:
    workload = tmp_path / "big.py"
    workload.write_text(
        "def compute(cluster):\n"
        "    cluster.say('y' * 2_000_000)\n"
        "    return {'text': 'x' * 3_000_000, 'values': [0.123456789 + i for i in range(400_000)], 'sum': 3}\n"
    )
    found, output = computed(tmp_path, "sum", workload=str(workload))
    assert found["values"] == [0.123456789 + i for i in range(400_000)]
    assert found["text"] == "x" * 3_000_000
    assert output.count("y") >= 2_000_000
    assert max(len(line) for line in output.splitlines() if "done: " in line) < 2000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "count", "slices", "sizes"),
    [
        (2, 100, None, [50, 50]),
        (3, 100, None, [34, 33, 33]),
        (3, 1000, [10, 20, 970], [10, 20, 970]),
    ],
)
def test_a_mean_of_means_is_right_only_when_weighted_by_size(
    tmp_path: Path, workers: int, count: int, slices: list[int] | None, sizes: list[int]
) -> None:
    settings = {"numbers": count, "seed": 7, "slices": slices}
    found, output = computed(tmp_path, "mean", tasks={"worker": workers}, settings=settings)
    numbers = np.random.default_rng(7).normal(5.0, 2.0, count)
    parts = [part.mean() for part in np.split(numbers, np.cumsum(sizes)[:-1])]
    assert found["sizes"] == sizes
    assert found["mean"] == pytest.approx(numbers.mean(), rel=1e-12)
    assert found["mean_of_means"] == pytest.approx(np.mean(parts), rel=1e-12)
    assert (abs(found["mean_of_means"] - numbers.mean()) > 1e-6) == (len(set(sizes)) > 1)
    assert output.count(" numbers = ") == workers


@pytest.mark.slow
def test_an_ensemble_is_better_than_the_mean_of_its_models(tmp_path: Path) -> None:
    found, output = computed(tmp_path, "ensemble")
    assert len(found["single"]) == 4
    assert found["ensemble"] > found["mean_of_single"] > 0.9
    assert all(f"on /job:worker/task:{task}/device:CPU:0" in output for task in range(4))


@pytest.mark.slow
def test_products_of_matrices_on_named_devices(tmp_path: Path) -> None:
    found, _ = computed(
        tmp_path, "matmul", tasks={"worker": {"replicas": 1, "cpu_devices": 2}}, settings={"device": "CPU:1"}
    )
    one = "/job:worker/task:0/device:CPU:1"
    assert found == {
        "product": {"value": [[22, 28], [49, 64]], "ran_on": one},
        "product again": {"value": [[22, 28], [49, 64]], "ran_on": one},
        "their sum": {"value": [[44, 56], [98, 128]], "ran_on": "/job:chief/task:0/device:CPU:0"},
        "small": {"value": [[5, 8], [13, 20]], "ran_on": one},
    }


@pytest.mark.slow
def test_powers_are_those_of_numpy_on_one_device_and_on_two(tmp_path: Path) -> None:
    found, output = computed(tmp_path, "matpow", "settings.size=100", "settings.n=7")
    assert set(found["seconds"]) == {"chain on 1", "chain on 2", "squaring on 1", "squaring on 2"}
    assert found["difference"] < 1e-5
    assert found["difference_from_numpy"] < 1e-5
    assert "chain on /job:worker/task:0/device:CPU:0 and /job:worker/task:1/device:CPU:0" in output
    assert "times as fast by the chain" in output


FAILURES = [
    (
        "remote-gpu",
        ["tasks.worker.gpus=0", "tasks.worker=2"],
        12,
        "there is no device /job:worker/task:0/device:GPU:0; there are: /job:worker/task:0/device:CPU:0, "
        "/job:worker/task:1/device:CPU:0",
    ),
    pytest.param(
        *("remote-gpu", [], 12, "worker:0: asked for 1 GPU(s), sees 0 (its devices: CPU:0)"), marks=pytest.mark.slow
    ),
    pytest.param(
        *("mean", ["settings.slices=[10, 20]"], 2, "[10, 20]: they add up to 30, settings.numbers is 100"),
        marks=pytest.mark.slow,
    ),
    pytest.param(
        *("mean", ["settings.slices=[100]"], 2, "settings.slices: [100]: 1 sizes for 2 tasks; give one for each"),
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize(("name", "sets", "code", "message"), FAILURES, ids=range(len(FAILURES)))
def test_an_invalid_computation_is_reported_in_one_line(
    tmp_path: Path, name: str, sets: list[str], code: int, message: str
) -> None:
    with Job(tmp_path, spec_of(name), *sets) as job:
        assert job.wait() == code, job.output
    assert message in job.output
    assert "Traceback" not in job.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (
            "with tf.device('/job:local/task:7/device:CPU:0'): tf.constant(1) + 1",
            12,
            "unknown device; there are: /job:local/task:0/device:CPU:0, /job:local/task:1/device:CPU:0",
        ),
        ("return {'y': tf.constant(1)}", 2, "compute() gave what JSON cannot hold"),
        ("raise KeyError('x')", 2, "own.py:3: KeyError: 'x'"),
    ],
    ids=["device", "json", "raise"],
)
def test_what_a_compute_of_ones_own_does_wrong_is_reported(tmp_path: Path, line: str, code: int, message: str) -> None:
    (tmp_path / "own.py").write_text(f"import tensorflow as tf\ndef compute(cluster):\n    {line}\n")
    with Job(tmp_path, {**spec_of("sum"), "workload": "own.py"}) as job:
        assert job.wait() == code, job.output
    assert message in job.output


OWN = """
import pathlib, time
import tensorflow as tf

def compute(cluster):
    marker = pathlib.Path(FOLDER) / "begun"
    with tf.device(cluster.device(1)):
        y = tf.constant(1) + 1
    cluster.progress(1)
    while not marker.exists():  # the first time: until a server is lost
        marker.with_name("waiting").touch()
        with tf.device(cluster.device(1)):
            y = y + 0
        time.sleep(0.05)
    return {"y": int(y)}
"""


@pytest.mark.slow
def test_a_lost_server_is_replaced_and_the_computation_restarts(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN.replace("FOLDER", repr(str(tmp_path))))
    with Job(tmp_path, {**spec_of("sum"), "workload": "own.py"}) as job:
        job.until("compute() waits", lambda _: (tmp_path / "waiting").exists())
        job.signal("worker:1")
        (tmp_path / "begun").touch()
        assert job.wait() == 0, job.output
    result = job.result()
    assert (result["result"], result["generations"]) == ({"y": 2}, 2)
    assert any("worker:1 lost" in json.dumps(event) for event in result["events"])
