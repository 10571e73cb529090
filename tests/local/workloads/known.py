"""Models whose weights after any number of steps are known, without a record of their batches.

Of a slope that is the same everywhere the order of steps does not matter, nor which worker makes them. Of a square each
batch is the whole data, in any order.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

SETTINGS: dict[str, Any] = {"square": True, "momentum": 0.0}
ROWS, FEATURES, COUNT = 8, 5, 3
_random = np.random.default_rng(23)
X = _random.normal(size=(ROWS, FEATURES)).astype("float32")
TARGETS = (X @ _random.normal(size=(FEATURES, COUNT))).astype("float32")
RATE = 0.01


def data(split: str) -> Any:
    return (X, TARGETS) if SETTINGS["square"] else (np.tile(X[:1], (ROWS, 1)), np.tile(TARGETS[:1], (ROWS, 1)))


def model() -> Any:
    x = keras.Input((FEATURES,))
    kept = keras.layers.BatchNormalization(trainable=False)(x)  # neither trained nor updated: as it was
    return keras.Model(x, keras.layers.Dense(COUNT, kernel_initializer="ones", use_bias=False)(kept))


def optimizer(steps: int, replicas: int) -> Any:
    return keras.optimizers.SGD(RATE, momentum=SETTINGS["momentum"])


def loss(y: Any, prediction: Any) -> Any:
    return tf.reduce_sum(tf.square(y - prediction) if SETTINGS["square"] else y * prediction, -1)
