"""Sums of large tensors in parts."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.training.exchange import collective_sums
from trainer.training.exchange.collective_sums import PART, add_up_in_parts, send_in_parts
from trainer.training.private import keras_patches

FLOATS = PART // 4


@pytest.mark.parametrize(
    ("shape", "dtype", "count"),
    [([], tf.float32, 1), ([FLOATS], tf.float32, 1), ([FLOATS + 1], tf.float32, 2), ([3, FLOATS], tf.float32, 3),
     ([2, FLOATS], tf.bfloat16, 1), ([2, FLOATS + 1], tf.bfloat16, 2), ([0, 5], tf.float32, 1)],
)  # fmt: skip
def test_a_sum_of_parts_is_that_of_the_whole(shape: list[int], dtype: tf.DType, count: int) -> None:
    value = tf.cast(tf.random.stateless_uniform(shape, [1, 2]), dtype)
    given: list[list[Any]] = []

    def twice(values: list[Any]) -> list[Any]:
        given.append(values)
        return [each * 2 for each in values]

    other = tf.constant([1.0, 2.0])
    total, last = add_up_in_parts(twice, [value, other])
    assert (total.shape, total.dtype) == (value.shape, value.dtype)
    np.testing.assert_array_equal(np.asarray(total), np.asarray(value * 2))
    assert last.numpy().tolist() == [2.0, 4.0]
    assert [len(values) for values in given] == [count + 1]
    assert all(len(tf.reshape(each, [-1])) * each.dtype.size <= PART for each in given[0])


def test_rows_and_tensors_of_unknown_shape_stay_whole() -> None:
    rows = tf.IndexedSlices(tf.ones([FLOATS + 1, 1]), tf.range(FLOATS + 1))

    @tf.function(input_signature=[tf.TensorSpec([None])], autograph=False)
    def sums(value: Any) -> Any:
        found = add_up_in_parts(lambda values: values, [value, rows])
        assert found[0] is value
        assert found[1] is rows
        return found[0]

    sums(tf.ones([FLOATS * 2]))


def test_an_optimizer_moves_each_variable_by_its_own_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective_sums, "PART", 40)
    optimizer, seen = keras.optimizers.SGD(1.0), []

    def noting(own: Any) -> Any:
        def add_up(pairs: Any) -> Any:
            seen.append([tuple(g.shape) for g, _ in pairs])
            return own(pairs)

        return add_up

    keras_patches.replace_gradient_sum(optimizer, noting)
    send_in_parts(optimizer)
    variables = [keras.Variable(np.zeros(shape, np.float32)) for shape in ([3, 7], [2], [4, 5])]
    optimizer.build(variables)
    gradients = [tf.reshape(tf.range(float(np.prod(v.shape))), v.shape) + 1 for v in variables]
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(v.value * g) for v, g in zip(variables, gradients, strict=True)])
    optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)
    for v, g in zip(variables, gradients, strict=True):
        np.testing.assert_array_equal(v.numpy(), -g.numpy())
    assert seen == [[(10,), (10,), (1,), (2,), (10,), (10,)]]
