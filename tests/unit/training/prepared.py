"""Jobs that train a model of Keras', prepared as the loops do it."""

from dataclasses import replace
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.unit.training import models
from tests.unit.training.jobs import setup
from trainer.job.errors import UserError
from trainer.training.model.state import TrainState, build_state, prepare
from trainer.training.task import TrainingTask


def job_of(
    model: Any, tasks: dict[str, Any] | None = None, train: dict[str, Any] | None = None, **parts: Any
) -> TrainingTask:
    job = setup(tasks, train={"batch_size": 16, **(train or {})})
    data = tf.data.Dataset.from_tensor_slices((models.X, models.Y))
    return replace(job, workload=replace(job.workload, model=model, data=lambda shard: data, **parts), arrays=None)


def built(job: TrainingTask) -> tuple[TrainState, list[str]]:
    state = build_state(job)
    return state, prepare(tf.distribute.get_strategy(), job, state, job.training)


def refusal(model: Any, *args: Any, **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        built(job_of(model, *args, **more))
    (line,) = caught.value.problems
    return str(line)


def network() -> Any:
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
