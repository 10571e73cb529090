"""Specs of the jobs that the local tests run: small enough to form, train and end in seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

PACED = str(Path(__file__).parent / "workloads/paced.py")
"""A workload that is not over before a test did what it is about, however fast the machine."""

GATED = str(Path(__file__).parent / "workloads/gated.py")
"""A workload that is slow until a test opens its gate: for jobs whose end a test waits for."""

KEYED, KEY = str(Path(__file__).parent / "workloads/keyed.py"), "very-secret-value"
"""A workload that trains only where the variable API_KEY has this value."""

DEADLINES = {"start": 60, "rejoin": 60, "hang": 20, "chief_lost": 40}


GRAPHS = {
    "sum": [
        "y1 = 302 on /job:local/task:0/device:CPU:0",
        "y2 = -64 on /job:local/task:1/device:CPU:0",
        "y = 238 on /job:chief/task:0/device:CPU:0",
    ],
    "mean": ["weighted by size  = 4.852776, right; NumPy says 4.852776"],
    "matmul": [
        "product = [[22, 28], [49, 64]] on /job:worker/task:0/device:CPU:0",
        "product again = [[22, 28], [49, 64]] on /job:worker/task:1/device:CPU:0",
        "their sum = [[44, 56], [98, 128]] on /job:chief/task:0/device:CPU:0",
        "small = [[5, 8], [13, 20]] on /job:worker/task:0/device:CPU:0",
    ],
}
"""What some of examples print, on every target."""


def parameter_server(*, steps: int | None = 400, workers: int = 2, **more: Any) -> dict[str, Any]:
    return _spec("parameter_server", {"ps": 1, "worker": workers}, steps, more)


def mirrored(*, steps: int | None = 400, workers: int = 2, **more: Any) -> dict[str, Any]:
    return _spec("multi_worker_mirrored", {"worker": workers}, steps, more)


def same_everywhere() -> dict[str, Any]:
    """A job whose cluster, steps and losses are the same wherever it runs."""
    task = {"replicas": 1, "cpu": 1}
    return mirrored(steps=60, train={"log_steps": 5, "seed": 7}, tasks={"chief": task, "worker": task})


TOUR_STEPS = 2500


def gated(steps: int, gate: str, **more: Any) -> dict[str, Any]:
    """A job that does not end before a test makes the file `gate`."""
    train = {"log_steps": 5, "checkpoint_steps": 50}
    return mirrored(steps=steps, workload=GATED, settings={"gate": gate}, train=train, **more)


def tour(gate: str) -> dict[str, Any]:
    """A job at which many tests look: ten steps a second for as long as they do, four minutes at most."""
    spec = gated(TOUR_STEPS, gate, workers=3, tasks={"evaluator": 1})
    spec["train"]["steps_per_call"] = 1
    return {**spec, "settings": {"gate": gate, "nap": 0.1}}


def keyed(**source: str) -> dict[str, Any]:
    """A job of one task that needs a secret."""
    return mirrored(steps=10, workers=1, workload=KEYED, secrets={"API_KEY": source})


def _spec(strategy: str, tasks: dict[str, Any], steps: int | None, more: dict[str, Any]) -> dict[str, Any]:
    train = {"steps": steps, "batch_size": 32, "learning_rate": 1e-3, "checkpoint_steps": 100, **more.pop("train", {})}
    return {
        "name": "digits",
        "strategy": strategy,
        "workload": "digits",
        "tasks": {**tasks, **more.pop("tasks", {})},
        "train": train,
        # Off unless a test is about it: on two cores the spare's import slows down what is tested.
        "warm_standby": False,
        "check_exports": False,  # likewise
        "deadlines": {**DEADLINES, **more.pop("deadlines", {})},
        **more,
    }


EITHER = [mirrored, pytest.param(parameter_server, marks=pytest.mark.slow)]
"""For tests of what holds under each strategy alike."""


SHIPPED = Path(__file__).parent / "workloads/shipped"
"""A folder of several modules and a file: `code`. Its workload reads the data `train` and `test`."""


def records(folder: Path) -> float:
    """Writes the data of `SHIPPED`; returns what its test metric `sum` must be."""
    random = np.random.default_rng(7)
    for split, parts in (("train", 3), ("test", 2)):
        (folder / split).mkdir(parents=True)
        for part in range(parts):
            np.save(folder / split / f"{part}.npy", random.normal(size=(64, 4)).astype("float32"))
    return float(sum(np.load(path).sum(dtype="float64") for path in (folder / "test").iterdir()))


def shipped(make: Any, data: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        **make(workload=str(SHIPPED / "model.py"), steps=20, code=str(SHIPPED), data=data, **more),
        "name": "shipped",
    }


EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str, **train: Any) -> dict[str, Any]:
    """The spec of an example with a folder of its own, such as "vae/vae", at a small scale."""
    path = EXAMPLES / f"{name}.yaml"
    spec: dict[str, Any] = yaml.safe_load(path.read_text())
    small = {"train": {**spec["train"], **train}, "deadlines": DEADLINES, "warm_standby": False}
    return {**spec, **small, "workload": str(path.parent / spec["workload"])}


def images(folder: Path, **train: Any) -> dict[str, Any]:
    """The example that reads images from records, which it writes into `folder`."""
    subprocess.run([sys.executable, EXAMPLES / "image-records" / "make_records.py", folder], check=True)
    spec = example("image-records/images", **train)
    return {**spec, "data": {"images": {**spec["data"]["images"], "path": str(folder)}}}


def assert_exported(result: dict[str, Any]) -> None:
    """Both files gave the outputs of the trained model. Classes of an example are registered by its file."""
    assert result["exports"]["saved_model"] == "equal"
    assert result["exports"]["model.keras"].partition(",")[0] == "equal"
