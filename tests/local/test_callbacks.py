"""Keras callbacks in a cluster: a job that loses a task is compared with Keras' own fit in one process."""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.local.specs import EITHER, mirrored, parameter_server
from tests.tools.harness import Job, csv_rows
from tests.unit.training.callbacks.loop import fit
from trainer.job.cluster import tasks_of
from trainer.job.load import build
from trainer.training.task import load_task

WORKLOAD = str(Path(__file__).parent / "workloads/callbacks.py")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def spec_of(make: Any, *, compiled: bool = True) -> dict[str, Any]:
    train = {"epochs": 30, "validation_split": 0.1, "learning_rate": 0.01, "checkpoint_steps": 15}
    spec: dict[str, Any] = make(steps=None, workload=WORKLOAD, train=train, settings={"compiled": compiled})
    del spec["train"]["steps"]
    if compiled:
        del spec["train"]["learning_rate"]
    return spec


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


@pytest.mark.slow
def test_a_job_that_loses_a_worker_does_what_the_fit_of_keras_does(tmp_path: Path) -> None:
    with Job(tmp_path, spec_of(mirrored)) as job:
        job.until_step(70)
        job.signal("worker:1")
        assert job.wait() == 0, job.output
    result, folder = job.result(), job.model_dir / "callbacks"
    assert result["generations"] == 2
    alone = {"batch_size": 64, "epochs": 30, "validation_split": 0.1}
    spec = build({"name": "j", "strategy": "one_device", "workload": WORKLOAD, "train": alone})
    task = load_task(spec, tasks_of(spec)[0])
    callbacks: Any = task.workload.callbacks
    model = fit(task, callbacks(str(tmp_path / "fit")))
    expected = tmp_path / "fit/callbacks"
    ours, theirs = csv_rows(folder / "log.csv"), csv_rows(expected / "log.csv")
    assert len(ours) == len(theirs) < 30
    for here, there in zip(ours, theirs, strict=True):
        assert here == pytest.approx(there, rel=1e-3, abs=1e-6)
    assert result["stopped_early"] == f"EarlyStopping: val_loss did not improve for 2 epochs; epoch {len(ours)}"
    assert result["steps"] == json.loads((folder / "batches.json").read_text())["seen"] == 20 * len(ours)
    assert names(folder) == names(expected)
    exported = keras.saving.load_model(job.model_dir / "export/model.keras", compile=False)
    best, other = (keras.saving.load_model(place / "best.keras") for place in (folder, expected))
    for here, there in ((exported, model), (best, other)):
        for one, two in zip(here.get_weights(), there.get_weights(), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-4)
    assert result["final_weights"] == f"set by EarlyStopping; the last checkpoint has those of step {result['steps']}"
    assert "stopped_early" in job.output


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [True, False])
def test_workers_of_a_parameter_server_end_with_the_callbacks(tmp_path: Path, compiled: bool) -> None:
    with Job(tmp_path, spec_of(parameter_server, compiled=compiled)) as job:
        job.until_step(70)
        job.signal("worker:1")
        assert job.wait() == 0, job.output
    result, folder = job.result(), job.model_dir / "callbacks"
    found = csv_rows(folder / "log.csv")
    assert [row["epoch"] for row in found] == list(range(len(found)))
    assert 1 < len(found) < 30
    assert result["stopped_early"] == f"EarlyStopping: val_loss did not improve for 2 epochs; epoch {len(found)}"
    assert result["steps"] == json.loads((folder / "batches.json").read_text())["seen"] == 40 * len(found)
    assert found[-1]["val_loss"] < 0.5
    assert found[-1]["learning_rate"] < 0.005
    assert result["test_accuracy"] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("make", EITHER)
def test_the_chief_goes_on_with_the_state_of_its_callbacks(tmp_path: Path, make: Any) -> None:
    with Job(tmp_path, spec_of(make)) as job:
        status = job.until_step(70)
        job.signal(next(iter(sorted(status["tasks"]))))
        assert job.wait() == 0, job.output
    found = csv_rows(job.model_dir / "callbacks/log.csv")
    assert [row["epoch"] for row in found] == list(range(len(found)))
    assert json.loads((job.model_dir / "callbacks/batches.json").read_text())["seen"] == job.result()["steps"]
