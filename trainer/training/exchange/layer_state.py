"""Keeps variables that layers update themselves, such as moving averages, equal on all replicas."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from trainer.training.exchange import averages
from trainer.training.exchange.ring import Ring
from trainer.training.private.keras_private import created_as_not_trainable
from trainer.workloads.types import Model, Strategy, Variable


def updated_by_layers(model: Model) -> list[Variable]:
    """Floating-point variables that were created as not trainable, once each.

    Frozen weights are not among them: they were created to be trained (keras/src/layers/layer.py, `trainable`). Random
    seeds are integers, and each replica has its own.
    """
    found = created_as_not_trainable(model)
    return list({id(v): v for v in found if tf.as_dtype(v.dtype).is_floating}.values())


def make_average(strategy: Strategy, ring: Ring | None, model: Model) -> Callable[[], None]:
    """A function that replaces each of these variables by its mean over all replicas.

    They have no aggregation in Keras 3 and drift apart (batch_normalization.py); a checkpoint must hold the values with
    which all replicas continue, or a resumed run would differ. Means are computed in float64, where the mean of equal
    float32 values is exact: variables that no layer changes, such as a Normalization layer's mean, stay unchanged.
    """
    return averages.make_average(strategy, ring, updated_by_layers(model), tf.float64)
