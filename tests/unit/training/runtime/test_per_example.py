from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.runtime import per_example


def values(y: Any, prediction: Any, function: Any) -> Any:
    return per_example.values("loss(y, prediction)", function, y, prediction).numpy().tolist()


def squares(y: Any, p: Any) -> Any:
    return tf.square(p - y)


B1 = tf.constant([[1.0], [2.0], [3.0]])
B = B1[:, 0]
BT = tf.constant([[1.0, 3.0], [2.0, 4.0], [0.0, 0.0]])

GOOD: list[tuple[str, Any, Any, Any, list[float]]] = [
    ("one value per example", B, 2 * B, squares, [1, 4, 9]),
    ("a column", B1, 2 * B1, squares, [1, 4, 9]),
    ("a value per token", 0 * BT, BT, squares, [5, 10, 0]),
    ("less the last axis", tf.zeros([3, 2, 4]), tf.zeros([3, 2, 4]), lambda _, p: p[..., 0] + 2, [2, 2, 2]),
    ("a whole number", tf.constant([1, 2, 3]), B, lambda y, _: y, [1, 2, 3]),
    ("a truth value", B, B, lambda y, p: tf.equal(y, p), [1, 1, 1]),
    ("float64", B, B, lambda y, _: tf.cast(y, tf.float64), [1, 2, 3]),
    ("a list", B, B, lambda y, _: [y[0], y[1], y[2]], [1, 2, 3]),
    ("an array", B, B, lambda _y, _p: np.ones(3), [1, 1, 1]),
    ("a dict of predictions", B, {"a": B1, "b": B}, lambda y, p: y - p["b"] + 1, [1, 1, 1]),
    ("one example", B[:1], B1[:1], squares, [0]),
    ("Keras' function", B1, 2 * B1, keras.losses.mean_squared_error, [1, 4, 9]),
    ("Keras' class", B1, 2 * B1, keras.losses.MeanSquaredError(reduction=None), [1, 4, 9]),
]


@pytest.mark.parametrize(("y", "prediction", "function", "expected"), [g[1:] for g in GOOD], ids=[g[0] for g in GOOD])
def test_values_within_an_example_are_averaged(y: Any, prediction: Any, function: Any, expected: list[float]) -> None:
    assert values(y, prediction, function) == expected


BAD: list[tuple[str, Any, Any, Any, str]] = [
    ("a broadcast", B, B1, squares, "shape [3]; it gave [3, 3], where y is [3], the prediction [3, 1]"),
    ("a broadcast the other way", B1, B, squares, "shape [3]; it gave [3, 3], where y is [3, 1], the prediction [3]"),
    ("a scalar", B, B, lambda y, p: tf.reduce_mean(p), "shape [3]; it gave a scalar, where"),
    ("a Python number", B, B, lambda y, p: 1.5, "shape [3]; it gave a scalar, where"),
    ("too few", B, B, lambda y, p: p[:2], "shape [3]; it gave [2], where"),
    ("a list of one", B, B, lambda y, p: p[:1], "shape [3]; it gave [1], where"),
    ("all tokens in a row", BT, BT, lambda y, p: tf.reshape(p, [-1]), "shape [3]; it gave [6], where"),
    ("a tuple of unlike shapes", B, B, lambda y, p: (y, B1), "one value per example; it gave tuple;"),
    ("a dict", B, B, lambda y, p: {"loss": y}, "one value per example; it gave dict;"),
    ("nothing", B, B, lambda y, p: None, "one value per example; it gave NoneType;"),
    ("words", B, B, lambda y, p: "loss", "one value per example; it gave str;"),
    ("Keras' class", B, B, keras.losses.MeanSquaredError(), "shape [3]; it gave a scalar, where"),
]


@pytest.mark.parametrize(("y", "prediction", "function", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_other_shapes_are_refused_with_both_named_and_a_fix(
    y: Any, prediction: Any, function: Any, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        values(y, prediction, function)
    assert str(caught.value).startswith("workload: loss(y, prediction) must give one value per example")
    assert message in str(caught.value)
    assert "such as prediction[:, 0]" in str(caught.value)


@pytest.mark.parametrize("rank_known", [True, False])
def test_a_shape_that_is_not_known_before_it_runs_is_looked_at_then(rank_known: bool) -> None:
    def python(y: Any, p: Any) -> Any:
        given = tf.py_function(lambda v: v[1:] if len(v) > 3 else v, [y], tf.float32)
        if rank_known:
            given.set_shape([None])
        return given

    call = tf.function(lambda y: per_example.values("loss", python, y, y), autograph=False)
    assert call(B).numpy().tolist() == [1, 2, 3]
    with pytest.raises(tf.errors.InvalidArgumentError):
        call(tf.ones([4]))


def test_batches_of_unknown_size_are_distinguished_too() -> None:
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None, 1])])
    def broadcast(y: Any, p: Any) -> Any:
        return per_example.values("loss", squares, y, p)

    with pytest.raises(UserError, match=r"shape \[batch\]; it gave \[None, None\]"):
        broadcast(B, B1)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, 1]), tf.TensorSpec([None, 1])])
    def column(y: Any, p: Any) -> Any:
        return per_example.values("loss", squares, y, p)

    assert column(B1, 2 * B1).numpy().tolist() == [1, 4, 9]
