"""Four layers of 640,000 parameters each: what a job with several ps can divide evenly."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

UNITS, EXAMPLES = 800, 4_096


def data(_: Any) -> Any:
    random = np.random.default_rng(0)
    x = random.normal(size=(EXAMPLES, UNITS)).astype("float32")
    return x, random.integers(0, 10, EXAMPLES).astype("int32")


def model() -> keras.Model:
    layers = [keras.layers.Dense(UNITS, activation="relu") for _ in range(4)]
    return keras.Sequential([keras.Input((UNITS,)), *layers, keras.layers.Dense(10)])
