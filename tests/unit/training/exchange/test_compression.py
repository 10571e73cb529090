"""Gradients in fewer bytes. Their training: tests/local/test_communication.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.training.exchange import compression
from trainer.training.private import keras_patches


@pytest.mark.parametrize(("dtype", "sent"), [("float32", "bfloat16"), ("float16", "float16"), ("bfloat16", "bfloat16")])
def test_only_dense_float32_gradients_are_sent_as_bfloat16_and_come_back_as_they_were(dtype: str, sent: str) -> None:
    seen: list[tuple[str, str]] = []

    def recorded(_: keras_patches.AddUp) -> keras_patches.AddUp:
        def add_up(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
            pairs = list(pairs)
            seen.extend((type(g).__name__, g.dtype.name) for g, _ in pairs)
            return pairs

        return add_up

    optimizer = keras.optimizers.SGD(1.0)
    keras_patches.replace_gradient_sum(optimizer, recorded)
    compression.to_bfloat16(optimizer, feedback=False)
    dense = tf.constant([1.0 + 2**-7 + 2**-10, 2.0], dtype)
    sparse = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0]), tf.constant([3, 1]))
    summed = optimizer._all_reduce_sum_gradients([(dense, "dense"), (sparse, "sparse")])
    assert [name for _, name in seen] == [sent, "float32"]
    assert [g.dtype.name for g, _ in summed] == [dtype, "float32"]
    assert [v for _, v in summed] == ["dense", "sparse"]
    if dtype == "float32":
        assert summed[0][0].numpy().tolist() == [1.0 + 2**-7, 2.0], "what bfloat16 cannot hold is gone"


def test_what_is_rounded_off_is_added_to_the_next_gradient() -> None:
    optimizer, weight = keras.optimizers.SGD(1.0), keras.Variable(np.zeros(2, np.float32))
    compression.to_bfloat16(optimizer, feedback=True)
    optimizer.build([weight])
    gradient = tf.constant([1 + 2**-9, -3 - 2**-7])  # bfloat16 has 8 bits
    sums = np.array([optimizer._all_reduce_sum_gradients([(gradient, weight)])[0][0] for _ in range(16)])
    assert (sums == sums.astype(tf.bfloat16.as_numpy_dtype)).all()
    np.testing.assert_allclose(sums.sum(axis=0), 16 * gradient.numpy(), atol=2**-7)
    compression.forget(optimizer)
    assert (optimizer._all_reduce_sum_gradients([(gradient, weight)])[0][0].numpy() == sums[0]).all()


@pytest.mark.parametrize("rank", [1, 3])
def test_low_ranks_are_exact_for_a_gradient_of_that_rank_and_make_up_for_others(rank: int) -> None:
    random = np.random.default_rng(rank)
    optimizer, weight = keras.optimizers.SGD(1.0), keras.Variable(np.zeros((5, 8, 30), np.float32))
    small = keras.Variable(np.zeros((2, 3), np.float32))
    compression.to_low_rank(optimizer, rank, 1)
    optimizer.build([weight, small])

    def summed(gradient: Any) -> Any:
        (total, _), (other, _) = optimizer._all_reduce_sum_gradients(
            [(tf.constant(gradient, tf.float32), weight), (tf.ones((2, 3)), small)]
        )
        assert (other.numpy() == 1).all(), "it would not become smaller"
        return total.numpy()

    low = (random.normal(size=(40, rank)) @ random.normal(size=(rank, 30))).reshape(5, 8, 30)
    np.testing.assert_allclose(summed(low), low, atol=1e-4)
    full = random.normal(size=(5, 8, 30))
    assert np.linalg.matrix_rank(summed(full).reshape(40, 30), tol=1e-4) == rank
    means = [sum(summed(full) for _ in range(count)) / count for count in (30, 300)]
    early, late = (np.abs(mean - full).max() for mean in means)
    assert late < early / 4, "each part is sent at last"


def test_what_is_left_out_is_known_of_the_variables_that_keras_itself_gives_to_the_sum() -> None:
    random = np.random.default_rng(3)
    gradient = random.normal(size=(24, 36)).astype(np.float32)

    def applied(compress: Callable[[Any], None], times: int) -> Any:
        optimizer, weight = keras.optimizers.SGD(1.0), keras.Variable(np.zeros((24, 36), np.float32))
        compress(optimizer)
        optimizer.build([weight])
        for _ in range(times):
            optimizer.apply([tf.constant(gradient)], [weight])
        return -weight.numpy()

    def low(optimizer: Any) -> None:
        compression.to_low_rank(optimizer, 2, 1)

    def rounded(optimizer: Any) -> None:
        compression.to_bfloat16(optimizer, feedback=True)

    assert np.linalg.matrix_rank(applied(low, 1), tol=1e-4) == 2
    np.testing.assert_allclose(applied(rounded, 64), 64 * gradient, atol=2**-5)
