"""Copies of variables that a graph trains, in place of the variables."""

from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.loops.ps.variable_copies import Copies
from trainer.training.private.adam import Adam

OPTIMIZERS: dict[str, Any] = {
    "adam": lambda: Adam(0.1),
    "keras' own": lambda: keras.optimizers.RMSprop(0.1, momentum=0.5, weight_decay=0.1, use_ema=True),
}


def trained(model: Any, optimizer: Any, steps: int) -> Any:
    """A graph that makes some steps on the copies and returns what they are then."""
    copies = Copies([*model.variables, *optimizer.variables], rounded=[])

    @tf.function(autograph=False)
    def run(tokens: Any) -> Any:
        copies.read()

        def one(i: Any) -> Any:
            with copies.in_use(), tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(tokens, training=True) ** 2)
                optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return i + 1

        tf.while_loop(lambda i: i < steps, one, (tf.constant(0),), parallel_iterations=1)
        return copies.values()

    return run


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_on_copies_are_those_on_the_variables(name: str) -> None:
    def made() -> tuple[Any, Any]:
        keras.utils.set_random_seed(5)
        layers = keras.layers
        model = keras.Sequential(
            [keras.Input((4,), dtype="int32"), layers.Embedding(9, 3), layers.BatchNormalization(), layers.Dense(2)]
        )
        optimizer = OPTIMIZERS[name]()
        optimizer.build(model.trainable_variables)
        return model, optimizer

    tokens = np.array([[1, 2, 2, 8], [0, 3, 4, 1]], np.int32)
    model, optimizer = made()
    before = [v.numpy() for v in (*model.variables, *optimizer.variables)]
    graph = trained(model, optimizer, 3)
    for _ in range(2):  # the copies of the first call are not those of the second
        found = [value.numpy() for value in graph(tokens)]
    other, own = made()
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(other(tokens, training=True) ** 2)
        own.apply(tape.gradient(loss, other.trainable_variables), other.trainable_variables)
    for v, first, value in zip((*other.variables, *own.variables), before, found, strict=True):
        np.testing.assert_allclose(value, v.numpy(), rtol=1e-5, atol=1e-6, err_msg=v.path)
        assert "moving" in v.path or "learning_rate" in v.path or not np.array_equal(value, first), v.path
    for v, first in zip((*model.variables, *optimizer.variables), before, strict=True):
        np.testing.assert_array_equal(v.numpy(), first, err_msg=v.path)


def test_within_a_use_the_variables_can_be_put_aside_and_rounded_ones_are_bfloat16() -> None:
    small, whole = (keras.Variable(np.array([1.0, 1 / 3], np.float32)) for _ in range(2))
    copies = Copies([small, whole], rounded=[small])

    @tf.function(autograph=False)
    def run() -> Any:
        copies.read()
        with copies.in_use():
            read = [tf.identity(v.value) for v in (small, whole)]
            small.assign([5.0, 5.0])
            with copies.put_aside():
                whole.assign([7.0, 7.0])
            return [*read, *copies.values()]

    third = np.float32(1 / 3)
    rounded = np.float32(ml_dtypes.bfloat16(third))
    assert rounded != third
    assert [value.numpy().tolist() for value in run()] == [[1, rounded], [1, third], [5, 5], [1, third]]
    assert (small.numpy().tolist(), whole.numpy().tolist()) == ([1, third], [7, 7])


@pytest.mark.parametrize("how", ["call", "rows", "reads"])
def test_a_step_that_changes_a_copy_is_refused(how: str) -> None:
    class Clipping(keras.layers.Dense):  # type: ignore[misc]  # keras has no types
        def call(self, x: Any, training: bool = False) -> Any:
            if how == "call" and training:
                self.kernel.assign(tf.clip_by_value(self.kernel, -1.0, 1.0))
            if how == "rows":
                self.kernel.value.scatter_update(tf.IndexedSlices(tf.zeros([1, 2]), tf.constant([1])))
            return super().call(x)

    layer = Clipping(2, name="clipping")
    layer.build((None, 3))
    copies = Copies(layer.variables, rounded=layer.variables)

    @tf.function(autograph=False)
    def run() -> Any:
        with copies.of_a_step():
            return tf.reduce_sum(layer(tf.ones([4, 3]), training=True))

    if how == "reads":
        run()
    else:
        with pytest.raises(UserError, match=r"communication.weights: bfloat16: clipping/kernel is changed within"):
            run()
