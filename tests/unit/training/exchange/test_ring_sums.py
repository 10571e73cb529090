"""Gradients of an optimizer, added up by the ring."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.exchange.test_ring import each, rings
from trainer.training.exchange import ring_sums, step_time
from trainer.training.exchange.ring import Ring
from trainer.training.exchange.ring_sums import send_by_ring

SHAPES = [(3, 5), (), (40, 50), (7,), (60, 70)]


def gradients(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [tf.constant(random.normal(size=shape).astype("float32")) for shape in SHAPES]


def add_up_of(ring: Ring, most: int) -> Any:
    """The sum over tasks of gradients without those of an optimizer."""
    optimizer = keras.optimizers.SGD()
    left: list[int] = []

    def without_ring(pairs: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        left.extend(i for _, i in pairs)
        return pairs

    optimizer._all_reduce_sum_gradients = without_ring
    send_by_ring(optimizer, ring, most)

    def add_up(given: list[Any]) -> tuple[list[Any], list[int]]:
        sums = optimizer._all_reduce_sum_gradients([(gradient, i) for i, gradient in enumerate(given)])
        return [total for total, _ in sums], left

    return add_up


@pytest.mark.parametrize("most", [1, 10_000, 10**9])
def test_each_gradient_is_the_sum_over_tasks(most: int) -> None:
    def work(ring: Ring, i: int) -> list[Any]:
        add_up = add_up_of(ring, most)
        made = tf.function(lambda given: add_up(given)[0], autograph=False)
        return [[total.numpy() for total in made(gradients(10 * i + step))] for step in range(3)]

    with rings(2) as (tasks, _):
        found = each(tasks, work)
    for step in range(3):
        for one, other, a, b in zip(found[0][step], found[1][step], gradients(step), gradients(10 + step), strict=True):
            np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(one, (a + b).numpy())


def test_sparse_gradients_and_those_of_unknown_size_are_added_up_as_before() -> None:
    sparse = tf.IndexedSlices(tf.ones((2, 3)), tf.constant([0, 4]), tf.constant([9, 3]))
    with rings(2) as (tasks, _):
        add_up = add_up_of(tasks[0], 100)

        @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 2))])
        def trace(unknown: Any) -> Any:
            totals, left = add_up([unknown, sparse])
            assert left == [0, 1]
            assert totals[0] is unknown
            assert totals[1] is sparse
            return unknown

        trace.get_concrete_function()


def test_the_clocks_of_a_step_see_the_exchange() -> None:
    with rings(2) as (tasks, _):
        add_up = add_up_of(tasks[0], 10_000)

        @tf.function(autograph=False)
        def step() -> Any:
            with step_time.added() as made:
                computed = [tf.random.stateless_normal(shape, [i, 0]) for i, shape in enumerate(SHAPES)]
                squares = [total**2 for total in add_up(computed)[0]]
            (group,) = step_time.exchanges(made.operations)
            groups[:] = [[each_.op.type for each_ in group[0]], [op.type for op in group[1]]]
            return squares

        groups: list[list[str]] = []
        step.get_concrete_function()
    given, received = groups
    assert received == ["PyFunc"] * 2
    assert set(given) - {"Const"} == {"Reshape", "ConcatV2"}


def test_packs_begin_with_the_last_gradients_and_are_not_larger_than_they_may_be() -> None:
    given = [*gradients(0), tf.cast(gradients(1)[2], tf.bfloat16)]
    assert list(ring_sums._packs(given, 10_000)) == [[5], [4], [3, 2, 1, 0]]
    assert list(ring_sums._packs(given, 1)) == [[5], [4], [3], [2], [1], [0]]
    assert list(ring_sums._packs(given, 10**9)) == [[5], [4, 3, 2, 1, 0]]
