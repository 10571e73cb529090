"""Arguments that fit() refuses before training starts. Complete jobs: tests/local/test_apis.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.load import build
from trainer.training import user_code
from trainer.training.loops import keras_fit
from trainer.training.state import TrainState
from trainer.training.task import TrainingTask
from trainer.workloads import fit
from trainer.workloads.load import _import_file
from trainer.workloads.workload import Workload


def setup(model: Any, **more: Any) -> TrainingTask:
    """Of a job on two devices of one task, where fit is that of Keras 3."""
    tasks = {"worker": {"cpu_devices": 2}}
    spec = build({"name": "j", "strategy": "mirrored", "api": "keras_fit", "workload": "x.py", "tasks": tasks, **more})
    return TrainingTask(spec, tasks_of(spec)[0], Workload("x.py", lambda: model), None)


def model(compiled: bool = True, **compile_with: Any) -> Any:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    if compiled:
        made.compile(loss="mse", **compile_with)
    return made


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (object(), "model() gave a builtins model, and under mirrored fit needs Keras 3; write tf.keras for keras"),
        (model(compiled=False), "model() must give a model that is compiled; call model.compile"),
        (
            keras.Sequential([keras.layers.Dense(1)]),
            "model() must give a model that is built; begin with tf.keras.Input",
        ),
        (model(steps_per_execution=5), "steps_per_execution=5: Keras 3 cannot do that on 2 replicas; set 1"),
    ],
    ids=["kind", "compiled", "built", "steps_per_execution"],
)
def test_a_model_that_fit_cannot_have_is_refused_with_the_fix(given: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        keras_fit._compiled(setup(given), SimpleNamespace(num_replicas_in_sync=2))
    assert str(caught.value) == f"workload: x.py: {message}"


def test_several_steps_per_execution_are_fine_on_one_replica() -> None:
    state = keras_fit._compiled(setup(model(steps_per_execution=5)), SimpleNamespace(num_replicas_in_sync=1))
    assert state.model.steps_per_execution == 5
    assert state.optimizer.built


@pytest.mark.parametrize(
    ("train", "total", "steps"),
    [({"steps": 600, "checkpoint_steps": 200}, 600, 200), ({"steps": 100}, 100, 100), ({"epochs": 3}, 66, 22)],
)
def test_an_epoch_is_what_lies_between_checkpoints_or_one_of_the_data(
    train: dict[str, int], total: int, steps: int
) -> None:
    assert keras_fit._steps_per_epoch(setup(None, train=train).spec, total) == steps


def test_variables_of_tf_keras_are_read_and_assigned_as_those_of_keras_3() -> None:
    """They are TensorFlow's own."""
    part = SimpleNamespace(variables=[tf.Variable([1.0, 2.0], name="w")])
    state = TrainState(part, SimpleNamespace(variables=[]))
    assert state.description()["model.000"] == {"path": "w:0", "shape": [2], "dtype": "float32"}
    assert state.values()["model.000"].tolist() == [1.0, 2.0]
    state.assign({"model.000": np.array([3.0, 4.0], np.float32)})
    assert state.values()["model.000"].tolist() == [3.0, 4.0]


def job_callback(given: Any, optimizer: Any) -> Any:
    """The job's callback on a task that writes no files, at the begin of an epoch."""
    made = setup(given, strategy="multi_worker_mirrored", tasks={"worker": 2})
    made = replace(made, task=tasks_of(made.spec)[1])
    channel: Any = SimpleNamespace(tell=lambda *_, **__: None)
    callback: Any = keras_fit._Epochs(made, TrainState(given, optimizer), channel, 5, 10, 0)
    callback._epoch_began, callback.on_train_begin = 0.0, lambda logs=None: None
    return callback


OWN_FIT = """import keras
def fit(model, *callbacks):
    model.fit(keras.ops.ones((1, 2)), keras.ops.ones(1), callbacks=list(callbacks), verbose=0)
class Broken(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs):
        1 / 0
"""


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize("own", [False, True])
def test_an_error_of_the_jobs_own_callback_is_not_put_down_to_the_workload(tmp_path: Path, own: bool) -> None:
    """Here it saves an optimizer that there is not."""
    path, given = tmp_path / "mine.py", model(optimizer="sgd")
    path.write_text(OWN_FIT)
    module = _import_file(str(path))
    callback = job_callback(given, optimizer=None)
    data = tf.data.Dataset.from_tensors(([[1.0, 2.0]], [1.0]))
    arguments = fit.Fit(data, 1, 1, 0, (callback,), is_chief=True)
    run = (lambda: module.fit(given, callback)) if own else (lambda: fit.fit(given, arguments))
    with pytest.raises(TrainerError) as caught, user_code.calling(str(path), "model.fit"):
        run()
    assert caught.value.code is Exit.BUG
    assert str(caught.value).startswith("unexpected AttributeError: 'NoneType' object has no attribute ")


def test_an_error_in_a_users_callback_is_attributed_to_user_code(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN_FIT)
    module = _import_file(str(path))
    with pytest.raises(UserError, match=rf"{path}:6: ZeroDivisionError"), user_code.calling(str(path), "model.fit"):
        module.fit(model(optimizer="sgd"), module.Broken())


def test_a_metric_that_is_no_number_is_named() -> None:
    callback = job_callback(model(), optimizer=None)
    with pytest.raises(UserError) as caught:
        callback.on_epoch_end(0, {"loss": 0.5, "spread": np.ones(3)})
    assert str(caught.value) == "workload: x.py: the metric 'spread' gives float64 (3,); it must give one number"
