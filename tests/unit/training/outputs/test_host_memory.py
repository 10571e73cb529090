from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainer.training.model.state import as_array
from trainer.training.outputs.host_memory import LARGE, PART, HostMemory


def some(shape: list[int], dtype: tf.DType) -> Any:
    whole = tf.random.uniform(shape, 0, 200, tf.int32, seed=len(shape))
    return tf.cast(whole, dtype)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16, tf.int64, tf.uint8, tf.bool], ids=str)
@pytest.mark.parametrize(
    "shape", [[], [0, 3], [5, 7], [LARGE + 3], [3, PART // 4 + 1]], ids=["scalar", "empty", "small", "large", "parts"]
)
def test_copies_have_each_bit_and_memory_of_their_own(shape: list[int], dtype: tf.DType) -> None:
    given = {"a": some(shape, dtype), "b": some([2, 2], tf.float32)}
    found = HostMemory(3, {}).copies(given)
    for name, tensor in given.items():
        value = np.array(tensor.numpy())
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        assert found[name].tobytes() == value.tobytes()
        assert not np.shares_memory(found[name], as_array(tensor))


def test_arrays_are_not_copied_again() -> None:
    array = np.ones(3)
    assert HostMemory(1, {}).copies({"of a GPU": array})["of a GPU"] is array


def test_the_memory_of_the_last_copies_is_used_again_where_it_fits() -> None:
    memory = HostMemory(2, {})
    kinds = ([LARGE], tf.float32), ([LARGE], tf.float32), ([LARGE + 1], tf.float32), ([LARGE + 1], tf.int64)
    given = [some(shape, dtype) for shape, dtype in kinds]
    found = [memory.copies({"a": tensor, "b": tensor})["a"] for tensor in given]
    assert [np.shares_memory(one, other) for one, other in itertools.pairwise(found)] == [True, False, False]
    assert found[-1].tobytes() == np.asarray(given[-1]).tobytes()


def test_an_update_does_not_change_a_copy() -> None:
    variable = tf.Variable(tf.ones([LARGE]))
    found = HostMemory(2, {}).copies({"a": tf.convert_to_tensor(variable)})
    variable.assign_add(tf.ones([LARGE]))
    assert (found["a"] == 1).all()
