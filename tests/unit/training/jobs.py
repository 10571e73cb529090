"""Jobs for the tests of training: digits, with parts replaced where a test needs it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from trainer.job.cluster import tasks_of
from trainer.job.load import build
from trainer.training.model.state import TrainState
from trainer.training.model.step import make_step
from trainer.training.task import TrainingTask
from trainer.workloads import datasets
from trainer.workloads.load import load_workload
from trainer.workloads.workload import Shard

MIRRORED, SERVED = "multi_worker_mirrored", "parameter_server"
DIGITS = datasets.load("digits")


def setup(tasks: dict[str, Any] | None = None, **spec: Any) -> TrainingTask:
    """Of a job that trains digits, as its first task."""
    tasks = tasks or {"worker": 1}
    strategy = SERVED if "ps" in tasks else MIRRORED
    job = build({"name": "j", "strategy": strategy, "workload": "digits", "tasks": tasks, **spec})
    return TrainingTask(job, tasks_of(job)[0], load_workload(job), DIGITS)


def with_workload(**parts: Any) -> TrainingTask:
    """Digits, but for those parts of the workload."""
    digits = setup()
    return replace(digits, workload=replace(digits.workload, **parts))


def network(*layers: Any) -> Any:
    return keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), *layers])


def batch(start: int = 0, count: int = 64) -> tuple[Any, Any]:
    rows = slice(start, start + count)
    return tf.constant(DIGITS["x_train"][rows]), tf.constant(DIGITS["y_train"][rows])


def with_data(job: TrainingTask, data: Callable[[Shard], object]) -> TrainingTask:
    return replace(job, workload=replace(job.workload, data=data), arrays=None)


def step_of(job: TrainingTask, state: TrainState) -> Callable[[Any], tuple[Any, Any]]:
    """Whether a batch was applied, and the vector of figures."""
    x, y = batch()
    spec = tf.nest.map_structure(tf.TensorSpec.from_tensor, (x, y))
    step = make_step(tf.distribute.get_strategy(), job, state, spec)

    def run(given: Any) -> tuple[Any, Any]:
        applied, _, vector = step.run(given)
        return applied, vector

    return run
