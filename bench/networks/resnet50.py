"""ResNet50 (arXiv 1512.03385), 23.6 million parameters, on random pictures: for the time of a step."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

SIDE, CLASSES, EXAMPLES = 64, 10, 256


def data(_: Any) -> Any:
    random = np.random.default_rng(0)
    pictures = random.normal(size=(EXAMPLES, SIDE, SIDE, 3)).astype("float32")
    return pictures, random.integers(0, CLASSES, EXAMPLES).astype("int32")


def model() -> keras.Model:
    return keras.applications.ResNet50(
        weights=None, input_shape=(SIDE, SIDE, 3), classes=CLASSES, classifier_activation=None
    )
