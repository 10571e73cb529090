from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from trainer.training.private.adam import Adam


def assert_same(own: Any, their: Any) -> None:
    # A value that comes near zero keeps the rounding of the larger ones on its way: up to 2e-6 here.
    np.testing.assert_allclose(own, their, rtol=1e-5, atol=5e-6)


def trained(optimizer: Any, gradients: list[Any]) -> list[Any]:
    variable = keras.Variable(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))
    optimizer.build([variable])
    for gradient in gradients:
        optimizer.apply([gradient], [variable])
    return [v.numpy() for v in (variable, *optimizer.variables)]


def test_it_updates_as_keras_own_does() -> None:
    numbers = np.random.default_rng(3)
    gradients = [keras.ops.convert_to_tensor(numbers.normal(size=(3, 4)).astype(np.float32)) for _ in range(20)]
    ours, theirs = trained(Adam(0.01), gradients), trained(keras.optimizers.Adam(0.01), gradients)
    assert len(ours) == len(theirs)
    for own, their in zip(ours, theirs, strict=True):
        assert_same(own, their)


def test_a_sparse_gradient_updates_as_keras_own_does() -> None:
    import tensorflow as tf

    rows = tf.IndexedSlices(tf.ones([2, 4]), tf.constant([0, 2]), tf.constant([3, 4]))
    for own, their in zip(trained(Adam(0.1), [rows]), trained(keras.optimizers.Adam(0.1), [rows]), strict=True):
        assert_same(own, their)


@pytest.mark.parametrize("options", [{"amsgrad": True}, {"weight_decay": 0.1}, {"clipnorm": 0.5}])
def test_options_of_keras_still_hold(options: dict[str, Any]) -> None:
    gradients = [keras.ops.ones([3, 4])] * 3
    ours, theirs = trained(Adam(0.1, **options), gradients), trained(keras.optimizers.Adam(0.1, **options), gradients)
    for own, their in zip(ours, theirs, strict=True):
        assert_same(own, their)
