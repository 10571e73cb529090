from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.jobs import batch, setup, step_of, with_workload
from trainer.job.errors import UserError
from trainer.training.model.state import build_state
from trainer.training.model.step import make_step
from trainer.training.task import TrainingTask
from trainer.workloads.locate import original

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def test_a_step_lowers_the_loss_and_returns_loss_and_accuracy_from_before_it() -> None:
    digits = setup(train={"optimizer": "sgd", "learning_rate": 0.1})
    state = build_state(digits)
    x, y = batch()
    expected = keras.losses.sparse_categorical_crossentropy(y, state.model(x), from_logits=True).numpy().mean()
    right = float((state.model(x).numpy().argmax(1) == y.numpy()).mean())
    step = tf.function(step_of(digits, state))
    loss, accuracy = step((x, y))[1].numpy()
    assert (loss, accuracy) == (pytest.approx(expected, rel=1e-4), pytest.approx(right))
    assert float(step((x, y))[1][0]) < loss
    assert int(state.optimizer.iterations) == 2


def test_gradients_of_two_replicas_add_up_to_those_of_one_of_twice_the_size() -> None:
    def change(digits: TrainingTask, replicas: int, *parts: tuple[Any, Any]) -> Any:
        total: Any = 0
        for part in parts:
            state = build_state(digits)
            before = state.values()["model.000"]
            step_of(digits, state)(part)
            total += state.values()["model.000"] - before
        return total

    train = {"optimizer": "sgd", "learning_rate": 0.1, "global_batch_size": 64}
    one = change(setup(train=train), 1, batch(0, 64))
    two = change(setup({"worker": 2}, train=train), 2, batch(0, 32), batch(32, 32))
    assert np.abs(one).max() > 1e-4
    np.testing.assert_allclose(two, one, atol=1e-6)


def test_losses_of_the_model_are_part_of_the_step() -> None:
    def model() -> keras.Model:
        regulariser = keras.regularizers.L2(1.0)
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_regularizer=regulariser)])

    squared = with_workload(model=model, loss=lambda y, prediction: 0.0 * prediction[:, 0], metrics={})
    state = build_state(squared)
    _, (loss,) = step_of(squared, state)((tf.ones([64, 4]), tf.zeros([64])))
    assert float(loss) == pytest.approx(float(np.square(state.values()["model.000"]).sum()), abs=0.05)
    assert float(loss) > 0


def test_a_loss_must_be_one_value_per_example() -> None:
    scalar = with_workload(loss=lambda y, prediction: tf.reduce_mean(prediction))
    step = tf.function(step_of(scalar, build_state(scalar)))
    with pytest.raises(Exception, match="it gave a scalar") as caught:
        step(batch())
    error = original(caught.value)
    assert isinstance(error, UserError)
    assert str(error).startswith(
        "workload: loss(y, prediction) must give one value per example, shape [64]; it gave a scalar, where y is [64], "
        "the prediction [64, 10]; give y and the prediction the same shape"
    )


FILE = """import keras, tensorflow as tf
DATASET = "digits"
def model():
    return keras.Sequential([keras.Input((8, 8), dtype="uint8"), keras.layers.Flatten(), keras.layers.Dense(10)])
def loss(y, prediction):
    bigger = prediction + 1.0
    prediction = tf.where(tf.size(y) > 3, bigger, prediction)
    return {}
"""
THEIRS = [
    ("tf.zeros([64]) + nope", "NameError: name 'nope' is not defined"),
    ("{'a': 1}['b']", "KeyError: 'b'"),
    ("keras.losses.nope(y)", "AttributeError: module 'keras.losses' has no attribute 'nope'"),
    ("prediction + tf.ones([7, 7])", "ValueError: Dimensions must be equal, but are 64 and 7"),
    ("0.0 if y[0] > 3 else 1.0", "OperatorNotAllowedInGraphError: Using a symbolic `tf.Tensor` as a Python `bool`"),
]


@pytest.mark.parametrize(("wrong", "message"), THEIRS)
def test_an_error_in_a_users_loss_is_reported_with_its_line_despite_autograph(
    tmp_path: Path, wrong: str, message: str
) -> None:
    file = tmp_path / "job.py"
    file.write_text(FILE.format(wrong))
    theirs = setup(workload=str(file))
    step = step_of(theirs, build_state(theirs))
    call = tf.function(lambda batch: tf.distribute.get_strategy().run(step, (batch,)))
    with pytest.raises(Exception) as caught:  # noqa: PT011 (whichever AutoGraph makes of it)
        call(batch())
    error = original(caught.value)
    assert isinstance(error, UserError)
    assert str(error).startswith(f"workload: {file}:8: {message}")


@pytest.mark.parametrize("column", [False, True])
def test_sample_weights_multiply_the_loss_as_in_keras_and_not_the_metrics(column: bool) -> None:
    digits = setup(train={"optimizer": "sgd", "learning_rate": 0.1})
    state, (x, y) = build_state(digits), batch()
    given = np.random.default_rng(1).uniform(0, 3, (64, 1) if column else 64)
    keras_model = keras.models.clone_model(state.model)
    keras_model.set_weights(state.model.get_weights())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    keras_model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    expected = keras_model.train_on_batch(x, y, sample_weight=given, return_dict=True)
    values = step_of(digits, state)((x, y, tf.constant(given)))[1].numpy()
    assert values.tolist() == pytest.approx([float(expected[name]) for name in ("loss", "accuracy")], rel=1e-4)
    for ours, theirs in zip(state.model.get_weights(), keras_model.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (64, 2), (64, 1, 1)])
def test_sample_weights_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    digits = setup()
    reported = "a scalar" if shape == () else str(list(shape))
    with pytest.raises(UserError) as caught:
        step_of(digits, build_state(digits))((*batch(), tf.ones(shape)))
    assert str(caught.value) == (
        f"workload: the sample weights of a batch are {reported}; give one weight per example, an array of shape [n]"
    )


def test_x_alone_is_refused_before_the_first_step() -> None:
    digits = setup()
    with pytest.raises(UserError, match=r"^workload: digits: the data are x alone, and the loss compares y with the"):
        make_step(tf.distribute.get_strategy(), digits, build_state(digits), tf.TensorSpec([64, 8, 8]))
