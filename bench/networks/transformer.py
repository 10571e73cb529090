"""A transformer that predicts the next symbol of a language: a Markov chain of order two, of few known sentences.

The chain itself would be right in 0.76 of all symbols, which is what is left of chance.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops

from bench.networks import keep

SETTINGS = {"keep_steps": 30}
SYMBOLS, LENGTH = 8, 32
EXAMPLES = {"train": 6_000, "test": 2_000}
WIDTH, HEADS, BLOCKS = 64, 4, 2


def data(shard: Any) -> Any:
    split = "test" if shard.split == "test" else "train"
    odds = np.random.default_rng(1).dirichlet(np.full(SYMBOLS, 0.1), (SYMBOLS, SYMBOLS)).cumsum(-1)
    random, count = np.random.default_rng(EXAMPLES[split]), EXAMPLES[split]
    text = random.integers(0, SYMBOLS, (count, LENGTH + 1))
    for i in range(2, LENGTH + 1):
        drawn = random.random((count, 1)) > odds[text[:, i - 2], text[:, i - 1]]
        text[:, i] = np.minimum(drawn.sum(1), SYMBOLS - 1)
    return text[:, :-1].astype("int32"), text[:, 1:].astype("int32")


def model() -> keras.Model:
    inputs = keras.Input((LENGTH,), dtype="int32")
    # Of a constant alone Keras would compute a constant, which is not trained.
    places = ops.zeros_like(inputs) + ops.arange(LENGTH, dtype="int32")
    x = layers.Embedding(SYMBOLS, WIDTH)(inputs) + layers.Embedding(LENGTH, WIDTH)(places)
    for _ in range(BLOCKS):
        seen = layers.LayerNormalization()(x)
        x += layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(seen, seen, use_causal_mask=True)
        x += layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, "gelu")(layers.LayerNormalization()(x)))
    return keras.Model(inputs, layers.Dense(SYMBOLS)(layers.LayerNormalization()(x)))


def callbacks(model_dir: str) -> list[Any]:
    return keep(model_dir, SETTINGS["keep_steps"])
