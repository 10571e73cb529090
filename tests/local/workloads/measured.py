"""A small convolutional network with BatchNormalization, whose loop lacks some of what it measures of each step.

SETTINGS: `without` is clocks, or counters (where the loop is, for the stacks of a hang), or empty.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.training.exchange import step_time
from trainer.training.loops.position import Position

SETTINGS = {"without": ""}
METRICS: dict[str, Any] = {}


def model() -> keras.Model:
    leave_out(SETTINGS["without"])
    layers = keras.layers
    hidden = [layers.Conv2D(16, 3), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D(), layers.Flatten()]
    return keras.Sequential([keras.Input((28, 28, 1)), *hidden, layers.Dense(10, dtype="float32")])


def data(shard: Any) -> Any:
    random = np.random.default_rng(0)
    return random.normal(size=(1024, 28, 28, 1)).astype("float32"), random.integers(0, 10, 1024).astype("int32")


def loss(y: Any, prediction: Any) -> Any:
    return keras.losses.sparse_categorical_crossentropy(y, prediction, from_logits=True)


def leave_out(what: str) -> None:
    """Takes it out of the graphs that this process makes from now on."""

    def no_time(*_: object) -> Any:
        return tf.constant(0.0, tf.float64)

    if what == "clocks":
        for owner, names in ((step_time, ("now", "after", "arrived")), (step_time.Added, ("completed", "exchanged"))):
            for name in names:
                setattr(owner, name, no_time)
    elif what == "counters":
        Position._count = lambda *_: None  # type: ignore[method-assign]
