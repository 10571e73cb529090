"""Sums and means over all replicas, outside steps: of weights, of what optimizers keep, and of layers' statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from trainer.training.exchange.collective_sums import add_up_in_parts
from trainer.training.private.keras_private import created_as_not_trainable, tf_variable
from trainer.workloads.types import Model, Strategy, Tensor, Variable


def make_average(
    strategy: Strategy, variables: Sequence[Variable], dtype: tf.DType | None = None
) -> Callable[[], None]:
    """Returns a function that replaces each variable by its mean over all replicas.

    Args:
        dtype: in which means are computed; by default, in each variable's own.
    """
    if not variables or strategy.num_replicas_in_sync == 1:
        return lambda: None

    def values() -> list[Tensor]:
        return [tf.cast(tf.convert_to_tensor(tf_variable(v)), dtype or v.dtype) for v in variables]

    @tf.function(autograph=False)
    def average() -> None:
        for v, total in zip(variables, sums(strategy, values), strict=True):
            v.assign(tf.cast(total / strategy.num_replicas_in_sync, v.dtype))

    averaged: Callable[[], None] = average
    return averaged


def updated_by_layers(model: Model) -> list[Variable]:
    """Floating-point variables that were created as not trainable, once each.

    Frozen weights are not among them: they were created to be trained (keras/src/layers/layer.py, `trainable`). Random
    seeds are integers, and each replica has its own.
    """
    variables = created_as_not_trainable(model)
    return list({id(v): v for v in variables if tf.as_dtype(v.dtype).is_floating}.values())


def make_average_of_layers(strategy: Strategy, model: Model, untracked: Iterable[Variable] = ()) -> Callable[[], None]:
    """Returns a function that replaces each variable that layers update by its mean over all replicas; and those that a
    step uses and that no layer has, if they are floating-point numbers.

    They have no aggregation in Keras 3 and drift apart (batch_normalization.py); a checkpoint must hold the values with
    which all replicas continue, or a resumed run would differ. Means are computed in float64, where the mean of equal
    float32 values is exact: variables that no layer changes, such as a Normalization layer's mean, stay unchanged.
    """
    others = [v for v in untracked if tf.as_dtype(v.dtype).is_floating]
    return make_average(strategy, [*updated_by_layers(model), *others], tf.float64)


def sums(strategy: Strategy, values: Callable[[], list[Tensor]]) -> list[Tensor]:
    """The sums over all replicas of the values that each of them computes."""

    def add_up() -> list[Tensor]:
        # identity places a tensor on the replica's device: without a device, "destinations can not be empty".
        placed = [tf.identity(value) for value in values()]
        replica, how = tf.distribute.get_replica_context(), tf.distribute.ReduceOp.SUM
        return add_up_in_parts(lambda parts: replica.all_reduce(how, parts), placed)

    return [strategy.experimental_local_results(total)[0] for total in strategy.run(add_up)]
