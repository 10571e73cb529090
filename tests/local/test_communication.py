"""Rounds of local steps, and gradients in fewer bytes: a job trains as an independent computation in NumPy does, from
the batches that each replica had."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from tests.local.specs import mirrored, parameter_server
from tests.local.workloads import adversarial, frozen, known, recorded
from tests.tools.harness import Job, saved_values
from trainer.training.exchange.compression import SEED

Weights = npt.NDArray[np.float64]
BATCH, CHECKPOINT_STEPS = 8, 24


def gradient(weights: Weights, rows: npt.NDArray[np.int32]) -> Weights:
    """Of the mean loss over some rows; the last row of the weights is the bias."""
    x = np.concatenate([recorded.X[rows], np.ones((len(rows), 1))], 1).astype(np.float64)
    found: Weights = x.T @ (2 * (x @ weights - recorded.TARGETS[rows])) / len(rows)
    return found


class Sum:
    """The sum of the replicas' gradients, as it is sent."""

    def __init__(self, given: dict[str, Any], replicas: int) -> None:
        self.given, self.replicas = given, replicas
        self.forget()

    def forget(self) -> None:
        shape = (recorded.FEATURES, recorded.COUNT)
        self.left_out = [np.zeros((shape[0] + 1, shape[1])) for _ in range(self.replicas)]
        self.guess = np.asarray(
            tf.random.stateless_normal([shape[1], self.given.get("rank", 4)], [SEED, 0]), np.float64
        )

    def of(self, slopes: list[Weights]) -> Weights:
        whole = [slope + left_out for slope, left_out in zip(slopes, self.left_out, strict=True)]
        if self.given.get("gradients") == "bfloat16":
            sent = [each.astype(ml_dtypes.bfloat16).astype(np.float64) for each in whole]
            self.left_out = [each - small for each, small in zip(whole, sent, strict=True)]
            rounded: Weights = np.sum(sent, axis=0).astype(ml_dtypes.bfloat16).astype(np.float64)
            return rounded
        if self.given.get("gradients") != "powersgd":
            plain: Weights = np.sum(slopes, axis=0)
            return plain
        base = np.linalg.qr(sum(each[:-1] @ self.guess for each in whole))[0]  # the last row is the bias
        self.guess = sum(each[:-1].T @ base for each in whole)
        total = np.concatenate([base @ self.guess.T, sum(each[-1:] for each in whole)])
        self.left_out = [
            np.concatenate([(each - total / self.replicas)[:-1], np.zeros((1, each.shape[1]))]) for each in whole
        ]
        return total


def trained(batches: list[npt.NDArray[np.int32]], momentum: float, given: dict[str, Any]) -> Weights:
    """The weights after all batches, of each replica (steps, BATCH)."""
    replicas, outer = range(len(batches)), given.get("outer")
    every, warmup = given.get("every", 1), given.get("warmup_steps", 0)
    summed = Sum(given, len(batches))
    own = [
        np.concatenate([np.ones((recorded.FEATURES, recorded.COUNT)), np.zeros((1, recorded.COUNT))]) for _ in replicas
    ]
    speed = [np.zeros_like(own[0]) for _ in replicas]
    before, outer_speed = own[0].copy(), np.zeros_like(own[0])
    for step in range(len(batches[0])):
        slopes = [gradient(own[i], batches[i][step]) for i in replicas]
        if every == 1 or step < warmup:
            slopes = [summed.of(slopes) / len(replicas)] * len(replicas)
        for i in replicas:
            speed[i] = momentum * speed[i] - recorded.RATE * slopes[i]
            own[i] = own[i] + speed[i]
        done = step + 1
        saves = done % CHECKPOINT_STEPS == 0 or done == len(batches[0])
        if done <= warmup:
            before = own[0].copy()
        elif every > 1 and ((done - warmup) % every == 0 or saves):
            mean = np.mean(own, axis=0)
            if outer:
                change = outer["learning_rate"] * (mean - before)
                outer_speed = outer["momentum"] * outer_speed + change
                mean = before + outer["momentum"] * outer_speed + change
            own, before = [mean.copy() for _ in replicas], mean
        if saves:
            speed = [np.mean(speed, axis=0)] * len(replicas)
            summed.forget()
    return own[0]


@pytest.mark.parametrize(
    ("given", "momentum", "workers", "devices"),
    [
        ({"every": 7, "warmup_steps": 5}, 0.9, 2, 1),
        pytest.param({"every": 4, "outer": {"learning_rate": 0.6, "momentum": 0.8}}, 0.0, 3, 1, marks=pytest.mark.slow),
        ({"gradients": "powersgd", "rank": 2}, 0.8, 2, 1),
        pytest.param({"gradients": "bfloat16"}, 0.8, 2, 1, marks=pytest.mark.slow),
        pytest.param({"every": 50}, 0.5, 1, 2, marks=pytest.mark.slow),
        pytest.param({"every": 5, "gradients": "bfloat16"}, 0.5, 2, 2, marks=pytest.mark.slow),
    ],
)
def test_the_weights_are_those_of_an_independent_computation(
    tmp_path: Path, given: dict[str, Any], momentum: float, workers: int, devices: int
) -> None:
    (tmp_path / "seen").mkdir()
    tasks = {"worker": {"replicas": workers, "cpu_devices": devices}}
    spec = mirrored(
        steps=60, workload=recorded.__file__, communication=given, tasks=tasks,
        settings={"folder": str(tmp_path / "seen"), "momentum": momentum},
        train={"batch_size": BATCH, "checkpoint_steps": CHECKPOINT_STEPS},
    )  # fmt: skip
    del spec["train"]["learning_rate"]
    with Job(tmp_path, spec) as job:
        assert job.wait() == 0, job.output
    files = sorted((tmp_path / "seen").iterdir())
    assert len(files) == workers * devices
    batches = [np.fromfile(file, np.int32).reshape(-1, BATCH)[:60] for file in files]
    wanted = trained(batches, momentum, given)
    values = saved_values(job.model_dir, 60)
    found = np.concatenate([values["model.000"], values["model.001"][None]])
    accuracy = {"bfloat16": 2e-2, "powersgd": 1e-3}.get(given.get("gradients", ""), 1e-4)
    np.testing.assert_allclose(found, wanted, rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize(
    ("workload", "given", "train"),
    [
        (frozen, {"every": 3, "gradients": "bfloat16"}, {"optimizer": "adam"}),
        (adversarial, {"every": 4, "outer": {}, "warmup_steps": 9}, {}),
    ],
    ids=["layers that keep state", "train_step of its own"],
)
@pytest.mark.slow
def test_a_job_that_loses_a_worker_and_one_that_does_not_have_the_same_weights(
    tmp_path: Path, workload: ModuleType, given: dict[str, Any], train: dict[str, Any]
) -> None:
    train = {"checkpoint_steps": 20, "batch_size": 8, **train}
    spec = mirrored(steps=200, workload=workload.__file__, communication=given, train=train)
    if workload is adversarial:
        del spec["train"]["learning_rate"]
    found = {}
    for name in ("unbroken", "broken"):
        (folder := tmp_path / name).mkdir()
        with Job(folder, spec) as job:
            if name == "broken":
                job.until_step(50)
                job.signal("worker:1")
            assert job.wait() == 0, job.output
        assert job.result()["generations"] == (2 if name == "broken" else 1)
        found[name] = saved_values(job.model_dir, 200)
    assert all(np.isfinite(value).all() for value in found["unbroken"].values())
    for name, value in found["unbroken"].items():
        np.testing.assert_array_equal(value, found["broken"][name], err_msg=name)


SCALE = 1 / np.sqrt(1 + 1e-3)
"""What a new BatchNormalization multiplies by."""


@pytest.mark.parametrize(
    ("given", "momentum"),
    [
        ({"every": 7}, 0.8),
        pytest.param({"every": 100, "gradients": "bfloat16", "weights": "bfloat16"}, 0.0, marks=pytest.mark.slow),
        pytest.param({"weights": "bfloat16"}, 0.6, marks=pytest.mark.slow),
    ],
)
def test_one_ps_worker_trains_as_an_independent_computation(
    tmp_path: Path, given: dict[str, Any], momentum: float
) -> None:
    spec = parameter_server(
        steps=60, workers=1, workload=known.__file__, communication=given, settings={"momentum": momentum},
        train={"batch_size": known.ROWS, "checkpoint_steps": 25, "keep_checkpoints": 9},
    )  # fmt: skip
    del spec["train"]["learning_rate"]
    with Job(tmp_path, spec) as job:
        assert job.wait() == 0, job.output
    x, weights = known.X.astype(np.float64) * SCALE, np.ones((known.FEATURES, known.COUNT))
    speed, wanted = np.zeros_like(weights), {0: weights}
    for step in range(1, 61):
        speed = momentum * speed - known.RATE * x.T @ (2 * (x @ weights - known.TARGETS)) / known.ROWS
        weights = weights + speed
        wanted[step] = weights
    for step in (25, 50, 60):
        kernel = next(v for v in saved_values(job.model_dir, step).values() if v.shape == weights.shape)
        accuracy = 1e-2 if "weights" in given else 1e-4
        np.testing.assert_allclose(kernel, wanted[step], rtol=accuracy, atol=accuracy)


@pytest.mark.slow
def test_each_step_of_ps_workers_is_applied_once_also_if_workers_are_lost(tmp_path: Path) -> None:
    spec = parameter_server(
        steps=4000, workers=3, workload=known.__file__, communication={"every": 6}, settings={"square": False},
        train={"batch_size": 2, "checkpoint_steps": 700, "log_steps": 50},
    )  # fmt: skip
    del spec["train"]["learning_rate"]
    with Job(tmp_path, spec) as job:
        for step, worker in ((200, "worker:2"), (900, "worker:0")):
            job.until_step(step)
            job.signal(worker)
        assert job.wait() == 0, job.output
    slope = SCALE * np.outer(known.X[0], known.TARGETS[0])
    values = saved_values(job.model_dir, 4000)
    kernel = next(v for v in values.values() if v.shape == slope.shape)
    np.testing.assert_allclose(kernel, 1 - 4000 * known.RATE * slope, rtol=1e-4, atol=1e-3)
