"""Tensors added up and gathered by the ring, in graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.exchange.test_ring import each, rings
from trainer.training.exchange import ring_sums, step_time
from trainer.training.exchange.ring import LOST, Ring
from trainer.training.exchange.ring_sums import add_up, from_first, gather

SHAPES = [(3, 5), (), (40, 50), (7,), (60, 70)]


def gradients(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [tf.constant(random.normal(size=shape).astype("float32")) for shape in SHAPES]


@pytest.mark.parametrize("most", [1, 10_000, 10**9])
def test_each_value_is_the_sum_over_tasks(most: int) -> None:
    def work(ring: Ring, i: int) -> list[Any]:
        made = tf.function(lambda given: add_up(ring, given, most), autograph=False)
        return [[total.numpy() for total in made(gradients(10 * i + step))] for step in range(3)]

    with rings(2) as (tasks, _):
        found = each(tasks, work)
    for step in range(3):
        for one, other, a, b in zip(found[0][step], found[1][step], gradients(step), gradients(10 + step), strict=True):
            np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(one, (a + b).numpy())


def test_integers_and_values_of_a_size_that_is_known_at_run_time_are_added_up() -> None:
    def work(ring: Ring, i: int) -> list[Any]:
        @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 2)), tf.TensorSpec((3,), tf.int64)])
        def sums(unknown: Any, numbers: Any) -> Any:
            return add_up(ring, [unknown, numbers, tf.cast(numbers, tf.int8)], 10**9)

        unknown, numbers, small = sums(tf.ones((4, 2)) * (i + 1), tf.constant([2**40 * (i + 1), i, -1], tf.int64))
        assert unknown.shape == (4, 2)
        return [unknown.numpy().tolist(), numbers.numpy().tolist(), small.numpy().tolist()]

    with rings(2) as (tasks, _):
        found = each(tasks, work)
    assert found[0] == found[1] == [[[3.0, 3.0]] * 4, [3 * 2**40, 1, -2], [0, 1, -2]]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_rows_of_all_tasks_come_one_behind_the_other_whatever_their_number(dtype: str) -> None:
    counts = [3, 0]

    def rows(i: int, step: int) -> Any:
        count = counts[(i + step) % 2]
        indices = tf.range(count, dtype=tf.int64) + 10 * i
        return tf.IndexedSlices(tf.cast(tf.ones((count, 4)) * (i + 1), dtype), indices, tf.constant([99, 4]))

    def work(ring: Ring, i: int) -> list[Any]:
        @tf.function(autograph=False, reduce_retracing=True)
        def sums(values: Any, indices: Any) -> Any:
            (total,) = add_up(ring, [tf.IndexedSlices(values, indices, tf.constant([99, 4]))], 100)
            assert total.values.shape[1:] == (4,)
            return total

        found = []
        for step in range(3):  # of one graph, or of several: their keys are the same on all tasks
            given = rows(i, step)
            total = sums(tf.identity(given.values), given.indices)
            found.append((total.indices.numpy().tolist(), tf.cast(total.values, tf.float32).numpy().tolist()))
        return found

    with rings(2) as (tasks, _):
        found = each(tasks, work)
    assert found[0] == found[1]
    for step in range(3):
        expected = [rows(i, step) for i in range(2)]
        indices, values = found[0][step]
        assert indices == [n for each_ in expected for n in each_.indices.numpy().tolist()]
        assert values == [row for each_ in expected for row in tf.cast(each_.values, tf.float32).numpy().tolist()]


def test_values_are_gathered_along_an_axis() -> None:
    def work(ring: Ring, i: int) -> Any:
        @tf.function(autograph=False)
        def gathered() -> Any:
            return [gather(ring, tf.fill((i + 1, 2), i), 0), gather(ring, tf.fill((2, 3), i), 1)]

        return [each_.numpy().tolist() for each_ in gathered()]

    with rings(2) as (tasks, _):
        found = each(tasks, work)
    assert found[0] == found[1] == [[[0, 0], [1, 1], [1, 1]], [[0, 0, 0, 1, 1, 1]] * 2]


def test_the_first_tasks_words_are_those_of_all() -> None:
    random = np.random.default_rng(1)
    words = [random.integers(-(2**31), 2**31, 1001, np.int32) for _ in range(6)]
    with rings(3) as (tasks, _):
        found = each(tasks, lambda ring, i: [from_first(ring, words[i + use]) for use in range(2)])
    for own in found:
        np.testing.assert_array_equal(own[0], words[0])
        np.testing.assert_array_equal(own[1], words[1])


def test_a_peer_that_is_lost_between_steps_is_an_error_of_tensorflows_as_it_is_within_one() -> None:
    with rings(2) as (tasks, connections):
        connections[1].close()
        with pytest.raises(tf.errors.UnavailableError, match=LOST):
            from_first(tasks[0], np.zeros(7, np.int32))


def test_the_clocks_of_a_step_see_the_exchange() -> None:
    with rings(2) as (tasks, _):

        @tf.function(autograph=False)
        def step() -> Any:
            with step_time.added() as made:
                computed = [tf.random.stateless_normal(shape, [i, 0]) for i, shape in enumerate(SHAPES)]
                squares = [total**2 for total in add_up(tasks[0], computed, 10_000)]
            (group,) = step_time.exchanges(made.operations)
            groups[:] = [[each_.op.type for each_ in group[0]], [op.type for op in group[1]]]
            return squares

        groups: list[list[str]] = []
        step.get_concrete_function()
    given, received = groups
    assert received == ["PyFunc"] * 2
    assert set(given) - {"Const"} == {"Reshape", "ConcatV2"}


def test_packs_begin_with_the_last_values_and_are_not_larger_than_they_may_be() -> None:
    given = [*gradients(0), tf.cast(gradients(1)[2], tf.bfloat16)]
    assert list(ring_sums._packs(given, 10_000)) == [[5], [4], [3, 2, 1, 0]]
    assert list(ring_sums._packs(given, 1)) == [[5], [4], [3], [2], [1], [0]]
    assert list(ring_sums._packs(given, 10**9)) == [[5], [4, 3, 2, 1, 0]]
