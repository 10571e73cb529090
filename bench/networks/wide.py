"""A table of rows and three layers, 236 million parameters, on random words: for the times of steps."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

ROWS, COLUMNS, WORDS, UNITS, EXAMPLES = 4_000_000, 40, 8, 12_000, 4_096


def data(_: Any) -> Any:
    random = np.random.default_rng(0)
    words = random.integers(0, ROWS, (EXAMPLES, WORDS)).astype("int32")
    return words, random.integers(0, 10, EXAMPLES).astype("int32")


def model() -> keras.Model:
    return wide(ROWS, COLUMNS, UNITS)


def wide(rows: int, columns: int, units: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((WORDS,), dtype="int32"),
            layers.Embedding(rows, columns),
            layers.Flatten(),
            layers.Dense(units, activation="relu"),
            layers.Dense(units // 2, activation="relu"),
            layers.Dense(10),
        ]
    )
