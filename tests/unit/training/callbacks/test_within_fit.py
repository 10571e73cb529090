"""Callbacks in a workload's fit(model, run), which may use the model that it was given."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.callbacks.loop import RecordingChannel
from tests.unit.training.jobs import setup
from tests.unit.training.loops.test_keras_fit import MODEL
from trainer.job.errors import UserError
from trainer.training.loops import keras_fit, sync
from trainer.training.model import state
from trainer.training.outputs.finish import Trained


def really(tmp_path: Path, text: str, seen: list[Any], optimizer: str) -> Trained:
    """Trains three epochs of four steps by the synchronous loop; the workload adds to `seen`."""
    path = tmp_path / "mine.py"
    body = "".join(f"    {line}\n" for line in text.splitlines())
    path.write_text(f"{MODEL}def fit(model, run):\n{body}")
    path.write_text(path.read_text().replace('"sgd"', f"keras.optimizers.{optimizer}"))
    train = {"steps_per_epoch": 4, "epochs": 3}
    strategy, job = (
        tf.distribute.get_strategy(),
        setup(api="keras_fit", workload=str(path), train=train, model_dir=str(tmp_path)),
    )
    job.workload.fit.__globals__["seen"] = seen  # type: ignore[union-attr]
    made = state.build_state(job)
    return keras_fit.run(job, made.model, lambda job: sync._run(strategy, job, made, 0, RecordingChannel()))


HOOK = "run.fit(model, callbacks=[keras.callbacks.LambdaCallback({})])"


def test_a_callback_may_use_the_model_that_fit_was_given(tmp_path: Path) -> None:
    """As a function within fit() does. The loop's callbacks have another one."""
    rates: list[float] = []
    hooks = (
        "on_epoch_begin=lambda e, logs: model.optimizer.learning_rate.assign(0.25 / (e + 1)), "
        "on_epoch_end=lambda e, logs: (seen.append(float(model.optimizer.learning_rate)), "
        "setattr(model, 'stop_training', e == 1))"
    )
    ended = really(tmp_path, HOOK.format(hooks), rates, "SGD(0.5)")
    assert rates == [0.25, 0.125]
    assert (ended.step, ended.early) == (8, "LambdaCallback: on_epoch_end has set model.stop_training; epoch 2")


def test_a_callback_cannot_set_a_schedule(tmp_path: Path) -> None:
    schedule = "keras.optimizers.schedules.CosineDecay(0.1, 9)"
    hook = f"on_epoch_end=lambda e, logs: setattr(cb.model.optimizer, 'learning_rate', {schedule})"
    text = f"cb = keras.callbacks.LambdaCallback({hook})\nrun.fit(model, callbacks=[cb])"
    with pytest.raises(UserError, match=r"a callback has set a learning rate to a schedule; give numbers"):
        really(tmp_path, text, [], "SGD(0.5)")


def test_the_code_after_fit_has_the_averages_of_use_ema(tmp_path: Path) -> None:
    seen: list[Any] = []
    text = "run.fit(model)\nseen.extend([model.get_weights(), model.optimizer])"
    really(tmp_path, text, seen, "SGD(0.01, use_ema=True)")
    weights, optimizer = seen
    for weight, average in zip(weights, optimizer._model_variables_moving_average, strict=True):
        np.testing.assert_array_equal(weight, average.value)
