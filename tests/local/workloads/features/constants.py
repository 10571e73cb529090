"""constants that `model()` draws"""

from __future__ import annotations

from typing import Any

import keras
from common import Pause, compiled, data

__all__ = ["data", "model"]


def model() -> Any:
    inputs = keras.Input((8,))
    projected = keras.ops.relu(Pause()(inputs) @ keras.random.normal((8, 32)))
    return compiled(keras.Model(inputs, keras.layers.Dense(4)(projected)))
