from collections.abc import Iterable
from typing import Any

import keras
import pytest
import tensorflow as tf

from trainer.training import gradients, keras_patches


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
    gradients.compress(optimizer)
    dense = tf.constant([1.0 + 2**-7 + 2**-10, 2.0], dtype)
    sparse = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0]), tf.constant([3, 1]))
    summed = optimizer._all_reduce_sum_gradients([(dense, "dense"), (sparse, "sparse")])
    assert [name for _, name in seen] == [sent, "float32"]
    assert [g.dtype.name for g, _ in summed] == [dtype, "float32"]
    assert [v for _, v in summed] == ["dense", "sparse"]
    if dtype == "float32":
        assert summed[0][0].numpy().tolist() == [1.0 + 2**-7, 2.0], "what bfloat16 cannot hold is gone"
