"""1,797 real handwritten digits of 8x8 pixels and a small dense network: trains in seconds, needs no network."""

from __future__ import annotations

import keras

DATASET = "digits"


def model() -> keras.Model:
    """A model from raw pixels, uint8 [batch, 8, 8] with values 0..16, to logits [batch, 10]."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8), dtype="uint8"),
            layers.Rescaling(1 / 16),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, dtype="float32"),
        ]
    )
