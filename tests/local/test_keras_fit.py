"""api keras_fit on real processes: model.fit is the loop. It refuses: tests/unit/training/loops/test_keras_fit.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.local.specs import DEADLINES, mirrored
from tests.tools.harness import Job
from trainer.workloads.load import _import_file
from trainer.workloads.workload import Shard

ROOT = Path(__file__).parents[2]
FIT = str(ROOT / "examples/digits_fit.py")
STEPS = 600


@pytest.mark.slow
def test_fit_goes_on_after_the_last_step_that_was_saved(tmp_path: Path) -> None:
    """22 steps in an epoch, and a checkpoint each 50. The chief is lost; in the test below other tasks are."""
    spec = mirrored(api="keras_fit", workload=FIT, steps=STEPS, train={"checkpoint_steps": 50, "log_steps": 50})
    del spec["train"]["learning_rate"]
    with Job(tmp_path, spec) as job:
        job.until("a checkpoint", lambda s: (s["last_checkpoint"] or 0) >= 200)
        job.signal("worker:0")
        assert job.wait(200) == 0, job.output
    result = job.result()
    assert (result["steps"], result["generations"]) == (STEPS, 2)
    assert result["test_accuracy"] >= 0.93
    resumed = int(result["tasks"]["worker:0"].rpartition("resume_step=")[2])
    assert resumed >= 200
    assert resumed % 50 == 0
    curve = [json.loads(line)["step"] for line in (job.model_dir / "metrics.jsonl").read_text().splitlines()]
    assert curve == list(range(50, STEPS + 1, 50)), "no step twice, none left out"


# Compared with Keras' own fit. ------------------------------------------------------------------------

FITTED = str(Path(__file__).parent / "workloads/fitted.py")
CLUSTERS: dict[str, dict[str, Any]] = {
    "one_device": {"worker": 1},
    "mirrored": {"worker": {"cpu_devices": 2}},
    "multi_worker_mirrored": {"worker": 2},
    "parameter_server": {"ps": 1, "worker": 2},
}
BATCH, SEED = 32, 5
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
History = dict[str, list[float]]


def fitted(strategy: str, folder: Path, kind: str) -> dict[str, Any]:
    train = {"global_batch_size": BATCH, "epochs": 8, "seed": SEED, "checkpoint_steps": 15}
    settings = {"kind": kind, "folder": str(folder / "own")}
    return {
        "name": "fitted", "strategy": strategy, "tasks": CLUSTERS[strategy], "api": "keras_fit", "workload": FITTED,
        "train": train, "settings": settings, "warm_standby": False, "deadlines": DEADLINES,
    }  # fmt: skip


def plain(folder: Path, kind: str) -> History:
    """Keras' own fit in this process, on the batches in the documented order: epoch by epoch one permutation."""
    workload = _import_file(FITTED)
    workload.SETTINGS["kind"] = kind
    keras.utils.set_random_seed(SEED)
    model = workload.model()
    parts = workload.data(Shard("train"))
    epochs = range(workload.EPOCHS)
    orders = [tf.random.experimental.stateless_shuffle(tf.range(workload.EXAMPLES), seed=[SEED, e]) for e in epochs]
    rows = np.concatenate(orders)
    data = tf.data.Dataset.from_tensor_slices(tuple(part[rows] for part in parts)).batch(BATCH)
    found = workload.train(
        model, data, folder, epochs=len(epochs), steps_per_epoch=workload.EXAMPLES // BATCH, shuffle=False
    )
    history: History = found.history
    return history


def histories(output: str) -> list[tuple[list[int], History]]:
    """What each task that calls fit has printed."""
    lines = [line.partition("HISTORY ")[2] for line in output.splitlines() if "HISTORY " in line]
    return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mirrored", "multi_worker_mirrored", "parameter_server"])
def test_fit_does_what_the_fit_of_keras_does(tmp_path: Path, strategy: str) -> None:
    """Also if a task is lost in the middle. Under parameter_server two workers train at once, so figures differ. Under
    one_device: the last test below; under central_storage: the support table."""
    expected, own = plain(tmp_path / "plain", "plain"), tmp_path / "own"
    own.mkdir()
    (own / "hold").touch()
    with Job(tmp_path, fitted(strategy, tmp_path, "plain")) as job:
        job.until("the middle", lambda s: (s["last_checkpoint"] or 0) >= 75)
        job.signal("ps:0" if strategy == "parameter_server" else list(job.status()["tasks"])[-1])
        (own / "hold").unlink()
        assert job.wait(300) == 0, job.output
    result, found = job.result(), histories(job.output)
    assert (result["steps"], result["generations"]) == (8 * 20, 2)
    assert len(found) == (2 if strategy == "multi_worker_mirrored" else 1)
    for epochs, history in found:
        assert epochs == list(range(8)), "all of them, also those before the restart"
        assert history.keys() == expected.keys()
        if strategy == "parameter_server":
            assert history["val_accuracy"][-1] == pytest.approx(expected["val_accuracy"][-1], abs=0.1)
        else:
            for name, values in expected.items():
                assert history[name] == pytest.approx(values, rel=1e-3), name
    names = {path.name for path in (tmp_path / "plain").iterdir()}
    assert {path.name for path in own.iterdir()} == names
    assert (own / "log.csv").read_text().count("\n") == 9


@pytest.mark.slow
def test_layers_and_steps_of_a_models_own(tmp_path: Path) -> None:
    """BatchNormalization and Dropout differ on each replica, so the figures are alike and not equal. Each alone, under
    each strategy: the support table."""
    expected = plain(tmp_path / "plain", "own")
    with Job(tmp_path, fitted("multi_worker_mirrored", tmp_path, "own")) as job:
        assert job.wait(300) == 0, job.output
    found = histories(job.output)
    assert len(found) == 2
    for _, history in found:
        assert history.keys() == expected.keys()
        assert history["val_accuracy"][-1] == pytest.approx(expected["val_accuracy"][-1], abs=0.05)
        assert history["val_loss"][-1] == pytest.approx(expected["val_loss"][-1], abs=0.1)
    assert job.result()["exports"]


@pytest.mark.slow
def test_a_job_that_is_stopped_within_fit_resumes_there(tmp_path: Path) -> None:
    expected, own = plain(tmp_path / "plain", "plain"), tmp_path / "own"
    own.mkdir()
    (own / "hold").touch()
    with Job(tmp_path, fitted("one_device", tmp_path, "plain")) as job:
        job.until("the middle", lambda s: (s["last_checkpoint"] or 0) >= 75)
        job.process.terminate()
        (own / "hold").unlink()
        assert job.wait() == 143, job.output
    assert "HISTORY" not in job.output
    with Job(tmp_path, fitted("one_device", tmp_path, "plain")) as job:
        assert job.wait() == 0, job.output
    # The order to stop reaches the task while it waits after step 80, or some calls later.
    assert 80 <= int(job.result()["tasks"]["worker:0"].rpartition("resume_step=")[2].split()[0]) < 160
    ((_, history),) = histories(job.output)
    assert history["val_loss"] == pytest.approx(expected["val_loss"], rel=1e-5)
