"""The classic tutorial's CNN: conv 5x5x32, pool, conv 5x5x64, pool, dense 500, dense 10 (1.66 M parameters)."""

from __future__ import annotations

import keras

DATASET = "mnist"


def model() -> keras.Model:
    """A model from raw pixels, uint8 [batch, 28, 28], to logits [batch, 10]."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((28, 28), dtype="uint8"),
            layers.Rescaling(1 / 255),
            layers.Reshape((28, 28, 1)),
            layers.Conv2D(32, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(500, activation="relu"),
            layers.Dense(10, dtype="float32"),
        ]
    )
