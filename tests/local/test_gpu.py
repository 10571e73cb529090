"""Jobs on this machine's first GPU. They are skipped where there is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness import Job, saved_values
from tests.local import specs
from tests.local.test_monitoring import addresses, scrape

CONVOLUTIONS = """
import keras
from trainer.workloads.digits import DATASET


def model():
    layers = keras.layers
    shape = [keras.Input((8, 8), dtype="uint8"), layers.Rescaling(1 / 16), layers.Reshape((8, 8, 1))]
    block = [layers.Conv2D(32, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D()]
    last = [layers.Flatten(), layers.Dropout(0.2), layers.Dense(10)]
    return keras.Sequential([*shape, *block, layers.Conv2D(64, 3, activation="relu"), *last])
"""
SHARED = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""TensorFlow takes all of a GPU's memory by default, and these tests run beside each other."""


def gpus() -> int:
    if not shutil.which("nvidia-smi"):
        return 0
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False)
    return len(listed.stdout.splitlines()) if listed.returncode == 0 else 0


pytestmark = pytest.mark.skipif(not gpus(), reason="this machine has no NVIDIA GPU")


def one(folder: Path, *, steps: int = 300, **more: Any) -> dict[str, Any]:
    """A job of one task, whose model has convolutions, batch normalization and dropout."""
    (folder / "convolutions.py").write_text(CONVOLUTIONS)
    spec = specs.mirrored(steps=steps, workload=str(folder / "convolutions.py"), **more)
    return {**spec, "strategy": "one_device", "tasks": {"worker": {"gpus": 1}}}


def gpu_memory(job: Job, task: str) -> float:
    """MB of the task's GPU that are in use, as its metrics have it."""
    families = text_string_to_metric_families(scrape(addresses(job)[task]))
    found = {family.name: family.samples for family in families if family.name.startswith("trainer_gpu_")}
    assert set(found) == {
        "trainer_gpu_memory_size_bytes",
        "trainer_gpu_memory_used_bytes",
        "trainer_gpu_utilization_ratio",
    }
    (used,) = found["trainer_gpu_memory_used_bytes"]
    return used.value / 1e6


@pytest.mark.parametrize("precision", ["none", "float16", "bfloat16"])
def test_a_task_learns_on_its_gpu(tmp_path: Path, precision: str) -> None:
    with Job(tmp_path, one(tmp_path, train={"mixed_precision": precision}), environ=SHARED) as job:
        assert job.wait() == 0, job.output
    result = job.result()
    assert (result["steps"], result["generations"]) == (300, 1)
    assert result["test_accuracy"] >= 0.93
    assert "device:GPU:0" in "".join(path.read_text() for path in (job.model_dir / "logs").iterdir())
    # The export is read without a GPU, in a process of its own.
    code = (
        f"import keras, numpy as np; m = keras.saving.load_model({str(job.model_dir / 'export/model.keras')!r});"
        "print(np.asarray(m(np.zeros((2, 8, 8), np.uint8))).shape)"
    )
    read = subprocess.run(
        [sys.executable, "-c", code], env={**SHARED, **job._environ, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "(2, 10)" in read.stdout


def test_a_job_on_a_gpu_goes_on_after_a_kill_as_if_nothing_had_happened(tmp_path: Path) -> None:
    found = []
    for killed in (False, True):
        (folder := tmp_path / str(killed)).mkdir()
        gate = folder / "gate"
        spec = {**specs.gated(200, str(gate)), "strategy": "one_device", "tasks": {"worker": {"gpus": 1}}}
        spec["train"] |= {"seed": 5, "deterministic": True}
        with Job(folder, {**spec, "warm_standby": killed}, environ=SHARED) as job:
            job.until_step(60)
            assert gpu_memory(job, "worker:0") > 100
            if killed:
                generation = job.status()["generation"]
                job.signal("worker:0")
                job.until_formed_again(generation)
            gate.touch()
            assert job.wait() == 0, job.output
        assert job.result()["generations"] == 1 + killed
        found.append(saved_values(job.model_dir, 200))
    assert set(found[0]) == set(found[1])
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_worker_of_a_ps_computes_on_a_gpu_that_the_others_do_not_see(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    spec = specs.gated(200, str(gate))
    spec |= {"strategy": "parameter_server", "tasks": {"ps": 1, "worker": {"replicas": 1, "gpus": 1}}}
    with Job(tmp_path, spec, environ=SHARED) as job:
        job.until_step(20)
        assert gpu_memory(job, "worker:0") > 100
        for task, address in addresses(job).items():
            assert ("trainer_gpu_memory_used_bytes{" in scrape(address)) == (task == "worker:0")
        gate.touch()
        assert job.wait() == 0, job.output
    assert job.result()["steps"] == 200


def test_two_tasks_share_a_gpu(tmp_path: Path) -> None:
    """By TensorFlow's ring: NCCL wants a GPU for each task."""
    spec = specs.mirrored(
        steps=200, tasks={"worker": {"replicas": 2, "gpus": 1}}, communication={"implementation": "ring"}
    )
    with Job(tmp_path, spec, environ=SHARED) as job:
        assert job.wait() == 0, job.output
    assert job.result()["test_accuracy"] >= 0.9
