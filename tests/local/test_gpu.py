"""Jobs on this machine's first GPU. They are skipped where there is none."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.local import specs
from tests.local.test_monitoring import addresses, scrape
from tests.tools.harness import Job, gpus, saved_values

CONVOLUTIONS = """
import keras
import tensorflow as tf
from trainer.workloads.digits import DATASET


def model():
    print("model() on", (tf.zeros(()) + 1).device, flush=True)
    layers = keras.layers
    shape = [keras.Input((8, 8), dtype="uint8"), layers.Rescaling(1 / 16), layers.Reshape((8, 8, 1))]
    block = [layers.Conv2D(32, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D()]
    last = [layers.Flatten(), layers.Dropout(0.2), layers.Dense(10)]
    made = keras.Sequential([*shape, *block, layers.Conv2D(64, 3, activation="relu"), *last])
    if COMPILED:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.compile("adam", loss, metrics=["sparse_categorical_accuracy"])
    return made
"""
ACCURACY = {False: "test_accuracy", True: "test_sparse_categorical_accuracy"}
"""Of a model that is compiled, or not."""
SHARED = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""TensorFlow takes all of a GPU's memory by default, and these tests run beside each other."""


pytestmark = pytest.mark.skipif(not gpus(), reason="this machine has no NVIDIA GPU")


def convolutions(folder: Path, *, compiled: bool = False) -> str:
    """A workload file whose model has convolutions, batch normalization and dropout."""
    path = folder / "convolutions.py"
    path.write_text(f"COMPILED = {compiled}\n{CONVOLUTIONS}")
    return str(path)


def until_gpu_is_in_use(job: Job, task: str) -> None:
    """Waits until the task's metrics have 100 MB in use on its GPU: they are read every few seconds."""
    deadline = time.monotonic() + 30
    while gpu_memory(job, task) < 100e6:
        assert time.monotonic() < deadline
        time.sleep(0.5)


def gpu_memory(job: Job, task: str) -> float:
    """Bytes of the task's GPU that are in use, as its metrics have it."""
    families = text_string_to_metric_families(scrape(addresses(job)[task]))
    found = {family.name: family.samples for family in families if family.name.startswith("trainer_gpu_")}
    assert set(found) == {
        "trainer_gpu_memory_size_bytes",
        "trainer_gpu_memory_used_bytes",
        "trainer_gpu_utilization_ratio",
    }
    (used,) = found["trainer_gpu_memory_used_bytes"]
    return used.value


@pytest.mark.parametrize(
    ("precision", "compiled"), [("none", False), ("none", True), ("float16", False), ("bfloat16", True)]
)
def test_a_task_learns_on_its_gpu_what_its_export_then_knows_on_a_cpu(
    tmp_path: Path, precision: str, compiled: bool
) -> None:
    spec = specs.mirrored(steps=300, workload=convolutions(tmp_path, compiled=compiled), check_exports=True)
    spec |= {"strategy": "one_device", "tasks": {"worker": {"gpus": 1}}}
    spec["train"]["mixed_precision"] = precision
    with Job(tmp_path, spec, environ=SHARED) as job:
        assert job.wait() == 0, job.output
    result = job.result()
    assert (result["steps"], result["generations"]) == (300, 1)
    assert result[ACCURACY[compiled]] >= 0.93
    assert set(result["exports"].values()) == {"equal"}
    assert "model() on /job:localhost/replica:0/task:0/device:GPU:0" in job.output


def test_a_job_on_a_gpu_goes_on_after_a_kill_as_if_nothing_had_happened(tmp_path: Path) -> None:
    found = []
    for killed in (False, True):
        (folder := tmp_path / str(killed)).mkdir()
        gate = folder / "gate"
        spec = {**specs.gated(200, str(gate)), "strategy": "one_device", "tasks": {"worker": {"gpus": 1}}}
        spec["train"] |= {"seed": 5, "deterministic": True}
        with Job(folder, {**spec, "warm_standby": killed}, environ=SHARED) as job:
            job.until_step(60)
            until_gpu_is_in_use(job, "worker:0")
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
        until_gpu_is_in_use(job, "worker:0")
        for task, address in addresses(job).items():
            assert ("trainer_gpu_memory_used_bytes{" in scrape(address)) == (task == "worker:0")
        gate.touch()
        assert job.wait() == 0, job.output
    assert job.result()["steps"] == 200


@pytest.mark.parametrize("compiled", [False, True])
def test_tasks_share_gpus_where_there_are_too_few(tmp_path: Path, compiled: bool) -> None:
    """By TensorFlow's ring: NCCL wants a GPU for each task."""
    tasks = {"worker": {"replicas": gpus() + 1, "gpus": 1}}
    workload = convolutions(tmp_path, compiled=compiled)
    spec = specs.mirrored(steps=200, workload=workload, tasks=tasks, communication={"implementation": "ring"})
    with Job(tmp_path, spec) as job:
        assert job.wait() == 0, job.output
    assert "tasks share them" in job.output
    result = job.result()
    assert result[ACCURACY[compiled]] >= 0.9
    assert all(f"replicas_in_sync={gpus() + 1} " in line for line in result["tasks"].values())


def test_an_operation_runs_on_the_gpu_that_it_names(tmp_path: Path) -> None:
    """examples/remote-gpu.yaml."""
    spec = {"name": "remote-gpu", "strategy": "graph", "workload": "remote_gpu"}
    with Job(tmp_path, {**spec, "tasks": {"worker": {"replicas": 1, "gpus": 1}}}, environ=SHARED) as job:
        assert job.wait() == 0, job.output
    assert "/job:worker/task:0/device:GPU:0" in job.output
