"""A layer of 1.6 million weights on arrays, beside a thread of Python: one that is always busy, or a generator's."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

INPUTS, CLASSES, EXAMPLES = 3136, 10, 2000
SETTINGS = {"python": "none"}
"""`python`: none, generator or thread."""


def model() -> Any:
    inputs = keras.Input((INPUTS,))
    return keras.Model(inputs, keras.layers.Dense(CLASSES)(keras.layers.Dense(512, activation="relu")(inputs)))


def data(shard: Any) -> Any:
    generator = np.random.default_rng(1)
    x, y = generator.random((EXAMPLES, INPUTS), "float32"), generator.integers(0, CLASSES, EXAMPLES).astype("int32")
    if shard.split != "train" or SETTINGS["python"] == "none":
        return x, y
    if SETTINGS["python"] == "thread":
        threading.Thread(target=_compute, args=(itertools.count(),), daemon=True).start()
        return x, y

    def examples() -> Iterator[tuple[Any, Any]]:
        while True:
            for one in zip(x, y, strict=True):
                _compute(range(3000))
                yield one

    return tf.data.Dataset.from_generator(
        examples, output_signature=(tf.TensorSpec([INPUTS]), tf.TensorSpec([], tf.int32))
    )


def _compute(times: Iterable[int]) -> None:
    """Pure Python, which keeps the GIL."""
    value = 0
    for _ in times:
        value = (value * 31 + 7) % 1_000_003
