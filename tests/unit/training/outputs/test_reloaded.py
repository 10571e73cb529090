"""What counts as equal outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainer.training.outputs.reloaded import difference, flat

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("expected", "found", "message"),
    [
        (1000.0, 1000.05, None),
        (1000.0, 1000.2, "the output differs by up to 0.2, where its largest value is 1000"),
        ([1000.0, 0.01], [1000.0, 0.05], None),
        ([NAN, INF, -INF, 1.0], [NAN, INF, -INF, 1.0], None),
        ([NAN, 1.0], [1.0, 1.0], "the output differs by up to nan, where its largest value is 1"),
        ([INF], [-INF], "the output differs by up to inf, where its largest value is 0"),
        ([0.0, 0.0], [0.0, 0.0], None),
        ([b"a", b"b"], [b"a", b"c"], "the output differs in 1 of 2 values"),
        ([1, 2, 3], [1, 3, 2], "the output differs in 2 of 3 values"),
        ([True], [True], None),
        ([1.0], [[1.0]], "the output has the shape (1, 1), that of the trained model (1,)"),
        ({"a": [1.0], "b": [2.0]}, {"a": [1.0], "b": [2.5]}, "output 2 differs by up to 0.5, where its largest"),
        ([np.ones(1), np.ones(1)], np.ones(1), "it gives 1 tensors, the trained model 2"),
    ],
)
def test_floats_may_differ_by_rounding_and_nothing_else_at_all(expected: Any, found: Any, message: str | None) -> None:
    one, other = (
        flat(v) if isinstance(v, (dict, list)) and not _is_array(v) else flat(tf.constant(v)) for v in (expected, found)
    )
    why = difference(one, other, 1e-4)
    assert why == message if message is None else message in str(why)


def _is_array(value: Any) -> bool:
    return isinstance(value, list) and not isinstance(value[0], np.ndarray)


def test_ragged_outputs_are_compared_in_their_parts() -> None:
    one, other = tf.ragged.constant([[1.0], [2.0, 3.0]]), tf.ragged.constant([[1.0, 2.0], [3.0]])
    assert difference(flat(one), flat(one), 1e-4) is None
    assert "output 2 differs in 1 of 3 values" in str(difference(flat(one), flat(other), 1e-4))


def test_bfloat16_is_compared_and_a_type_is_not_ignored() -> None:
    halves = tf.constant([1.0, 2.0], tf.bfloat16)
    assert difference([halves], [halves + tf.constant(0.05, tf.bfloat16)], 5e-2) is None
    assert difference([halves], [halves * 2], 5e-2)
