"""A pretrained part that is frozen, a constant, and layers that keep statistics of what they see."""

from __future__ import annotations

from typing import Any

import keras

DATASET = "digits"


class Seen(keras.layers.Layer):  # type: ignore[misc]
    """Adds a constant, and follows the mean of its inputs."""

    def build(self, _shape: Any) -> None:
        self.shift = self.add_weight(shape=(64,), initializer=keras.initializers.Constant(0.1), trainable=False)
        self.mean = self.add_weight(shape=(), initializer="zeros", trainable=False, dtype="float16", name="mean")

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            seen = keras.ops.cast(keras.ops.mean(x), "float16")
            self.mean.assign(0.9 * self.mean.value + 0.1 * seen)
        return x + self.shift


def model() -> keras.Model:
    layers = keras.layers
    frozen = layers.Dense(64, activation="relu", trainable=False, kernel_initializer=initializer(), name="frozen")
    parts = [layers.Rescaling(1 / 16), layers.Flatten(), frozen, Seen(), layers.BatchNormalization()]
    return keras.Sequential([keras.Input((8, 8), dtype="uint8"), *parts, layers.Dense(10)])


def initializer() -> Any:
    return keras.initializers.GlorotUniform(seed=1)
