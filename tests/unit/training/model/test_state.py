import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.jobs import batch, setup, step_of
from trainer.job.errors import UserError
from trainer.training.model.state import TrainState, build_state, prepare

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


@pytest.fixture(scope="module")
def built() -> TrainState:
    return build_state(setup())


def test_a_train_state_describes_everything_in_a_checkpoint(built: TrainState) -> None:
    described = built.description()
    assert [name for name in described if name.startswith("model.")] == [f"model.{i:03d}" for i in range(6)]
    assert described["model.000"]["shape"] == [64, 128]
    assert described["model.000"]["dtype"] == "float32"
    assert len(described) == 6 + 2 + 2 * 6, "adam: iteration, learning rate, and two slots per variable"
    assert described["optimizer.000"]["shape"] == []
    values = built.values()
    assert {n: (list(v.shape), str(v.dtype)) for n, v in values.items()} == {
        n: (d["shape"], d["dtype"]) for n, d in described.items()
    }


def test_values_are_copies_and_come_back_by_assignment(built: TrainState) -> None:
    values = built.values()
    before = {name: value.copy() for name, value in values.items()}
    built.assign({name: np.ones_like(value) for name, value in values.items()})
    assert all((values[name] == before[name]).all() for name in values), "the copies stayed as they were"
    assert all((value == 1).all() for value in built.values().values())
    built.assign(before)
    assert all((value == before[name]).all() for name, value in built.values().items())


def test_the_seed_decides_the_first_values() -> None:
    def first(seed: int) -> bytes:
        return build_state(setup(train={"seed": seed})).values()["model.000"].tobytes()

    assert first(1) == first(1) != first(2)


# Each: tasks, learning_rate_scaling, and the factor of the rate.
SCALING: list[tuple[dict[str, Any], str, float]] = [
    ({"worker": 4}, "none", 1),
    ({"worker": 4}, "linear", 4),
    ({"worker": 4}, "sqrt", 2),
    ({"chief": 1, "worker": 1}, "sqrt", math.sqrt(2)),
    ({"worker": 4, "ps": 1}, "linear", 1),
]


@pytest.mark.parametrize(("tasks", "scaling", "factor"), SCALING)
def test_the_learning_rate_follows_the_replicas_in_sync(tasks: dict[str, Any], scaling: str, factor: float) -> None:
    train = {"learning_rate": 0.1, "learning_rate_scaling": scaling, "optimizer": "sgd"}
    optimizer = build_state(setup(tasks, train=train)).optimizer
    assert float(optimizer.learning_rate) == pytest.approx(0.1 * factor)


@pytest.mark.parametrize("name", ["adam", "sgd", "rmsprop", "adagrad"])
def test_the_optimizer_is_the_one_that_was_asked_for(name: str) -> None:
    assert type(build_state(setup(train={"optimizer": name})).optimizer).__name__.lower() == name


@pytest.fixture
def _any_policy() -> Iterator[None]:
    before = keras.mixed_precision.dtype_policy()
    yield
    keras.mixed_precision.set_dtype_policy(before)


@pytest.mark.usefixtures("_any_policy")
def test_under_float16_the_loss_is_scaled_and_variables_stay_float32() -> None:
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    digits = setup(train={"mixed_precision": "float16", "optimizer": "sgd", "learning_rate": 0.5})
    state = build_state(digits)
    assert isinstance(state.optimizer, keras.optimizers.LossScaleOptimizer)
    assert {variable.dtype for variable in state.model.variables} == {"float32"}
    step = tf.function(step_of(digits, state))
    losses = [float(step(batch())[1][0]) for _ in range(20)]
    assert losses[-1] < losses[0] / 2, "scaled and scaled back: sgd shows the size of a gradient"


def test_a_model_without_a_trainable_variable_is_refused(tmp_path: Path) -> None:
    job = setup(model_dir=str(tmp_path))
    state = build_state(job)
    state.model.trainable = False
    with pytest.raises(UserError, match=r"model\(\) has no trainable variables, so nothing can be trained; set "):
        prepare(tf.distribute.get_strategy(), job, state, job.training)
