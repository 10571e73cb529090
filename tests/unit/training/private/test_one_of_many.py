"""A strategy whose replicas are in several processes: here in threads, with sums that a list carries."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.training.private.one_of_many import Others, one_of_many
from trainer.training.private.tensorflow_patches import making_the_strategy

SIZE, RANK = 3, 1


class Carried:
    """Of three equal processes: sums are three times the value."""

    def __init__(self) -> None:
        self.sums: list[list[Any]] = []

    def add_up(self, values: list[Any]) -> list[Any]:
        self.sums.append(values)
        return [tf.IndexedSlices(3 * v.values, v.indices, v.dense_shape) if isinstance(v, tf.IndexedSlices) else 3 * v
                for v in values]  # fmt: skip

    def gather(self, value: Any, axis: int) -> Any:
        return tf.concat([value] * SIZE, axis)


@pytest.fixture
def carried() -> Carried:
    return Carried()


@pytest.fixture
def strategy(carried: Carried) -> Any:
    with making_the_strategy():
        return one_of_many(Others(RANK, SIZE, carried.add_up, carried.gather))


def local(strategy: Any, value: Any) -> Any:
    (own,) = strategy.experimental_local_results(value)
    return own.numpy().tolist()


def test_it_has_the_replicas_of_all_processes_and_runs_its_own(strategy: Any) -> None:
    assert strategy.num_replicas_in_sync == SIZE

    @tf.function(autograph=False)
    def step() -> Any:
        return strategy.run(lambda: tf.distribute.get_replica_context().replica_id_in_sync_group + tf.constant(0))

    assert local(strategy, step()) == RANK
    assert not strategy.extended.should_checkpoint


@pytest.mark.parametrize(("how", "expected"), [("SUM", [3.0, 6.0]), ("MEAN", [1.0, 2.0])])
def test_all_reduce_and_reduce_go_to_the_others(
    strategy: Any, carried: Carried, how: str, expected: list[float]
) -> None:
    def replica() -> Any:
        return tf.distribute.get_replica_context().all_reduce(how, tf.constant([1.0, 2.0]))

    @tf.function(autograph=False)
    def reduced() -> Any:
        return strategy.run(replica), strategy.reduce(how, strategy.run(lambda: tf.constant([1.0, 2.0])), axis=None)

    one, other = reduced()
    assert local(strategy, one) == expected
    assert other.numpy().tolist() == expected
    assert len(carried.sums) == 2


def test_the_gradient_of_a_sum_is_a_sum(strategy: Any, carried: Carried) -> None:
    """As synchronized BatchNormalization needs it."""

    @tf.function(autograph=False)
    def step() -> Any:
        def replica() -> Any:
            x = tf.constant(2.0)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.distribute.get_replica_context().all_reduce("SUM", x) ** 2
            return tape.gradient(y, x)

        return strategy.run(replica)

    assert local(strategy, step()) == 3 * 2 * (3 * 2.0)
    assert len(carried.sums) == 2


def test_values_are_gathered(strategy: Any) -> None:
    @tf.function(autograph=False)
    def step() -> Any:
        def replica() -> Any:
            return tf.distribute.get_replica_context().all_gather(tf.constant([[1, 2]]), axis=1)

        return strategy.run(replica), strategy.gather(strategy.run(lambda: tf.constant([[7]])), axis=0)

    one, other = step()
    assert local(strategy, one) == [[1, 2, 1, 2, 1, 2]]
    assert other.numpy().tolist() == [[7], [7], [7]]


def test_an_optimizer_adds_up_dense_and_sparse_gradients(strategy: Any, carried: Carried) -> None:
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((2,), dtype="int32"), keras.layers.Embedding(5, 2), keras.layers.Dense(1)]
        )
        optimizer = keras.optimizers.SGD(1.0)
        optimizer.build(model.trainable_variables)
    before = [v.numpy() for v in model.trainable_variables]

    @tf.function(autograph=False)
    def step() -> None:
        def replica() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(tf.constant([[1, 4]])))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

        strategy.run(replica)

    step()
    kinds = [isinstance(each, tf.IndexedSlices) for each in carried.sums[-1]]
    assert kinds == [True, False, False]
    table, kernel, bias = (v.numpy() for v in model.trainable_variables)
    np.testing.assert_allclose(table[[1, 4]], before[0][[1, 4]] - 3 * before[1].T, rtol=1e-5)
    np.testing.assert_array_equal(table[[0, 2, 3]], before[0][[0, 2, 3]])
    np.testing.assert_allclose(kernel, before[1] - 3 * before[0][[1, 4]].sum(0)[:, None], rtol=1e-5)
    assert (before[2] - bias).tolist() == [6.0]


def test_a_variable_with_a_mean_has_that_of_all_processes(strategy: Any) -> None:
    with strategy.scope():
        v = tf.Variable(5.0, aggregation=tf.VariableAggregation.MEAN)
        total = tf.Variable(
            1.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
        )

    @tf.function(autograph=False)
    def step() -> None:
        strategy.run(lambda: (v.assign(tf.constant(7.0)), total.assign_add(1.0)))

    step()
    assert v.numpy() == 7.0
    assert total.numpy() == 6.0
