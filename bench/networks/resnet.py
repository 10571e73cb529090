"""A ResNet (arXiv 1512.03385: that of 20 layers, with fewer and narrower blocks, batch normalisation kept), on digits
of MNIST that are small, at random places and in noise."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from bench.networks import keep
from trainer.workloads import datasets

SETTINGS = {"keep_steps": 30}
SIZE, DIGIT, NOISE = 20, 14, 0.6
EXAMPLES = {"train": 20_000, "test": 5_000}
BLOCKS, WIDTHS = 2, (8, 16, 32)


def data(shard: Any) -> Any:
    split = "test" if shard.split == "test" else "train"
    arrays = datasets.load("mnist", None)
    random, count = np.random.default_rng(EXAMPLES[split]), EXAMPLES[split]
    small = arrays[f"x_{split}"][:count].reshape(count, DIGIT, 2, DIGIT, 2).mean((2, 4)) / 255
    images = random.normal(0, NOISE, (count, SIZE, SIZE, 1)).astype("float32")
    places = random.integers(0, SIZE - DIGIT + 1, (count, 2))
    for image, digit, (row, column) in zip(images, small, places, strict=True):
        image[row : row + DIGIT, column : column + DIGIT, 0] += digit
    return images, arrays[f"y_{split}"][:count].astype("int32")


def model() -> keras.Model:
    inputs = keras.Input((SIZE, SIZE, 1))
    x = _normal(inputs, WIDTHS[0], 1)
    for width in WIDTHS:
        for block in range(BLOCKS):
            strides = 2 if block == 0 and width > WIDTHS[0] else 1
            short = x if strides == 1 else keras.layers.Conv2D(width, 1, 2, use_bias=False)(x)
            x = keras.layers.Activation("relu")(_normal(x, width, strides))
            x = keras.layers.Activation("relu")(keras.layers.Add()([_normal(x, width, 1), short]))
    return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x)))


def _normal(x: Any, width: int, strides: int) -> Any:
    x = keras.layers.Conv2D(width, 3, strides, padding="same", use_bias=False)(x)
    return keras.layers.BatchNormalization(momentum=0.9)(x)


def callbacks(model_dir: str) -> list[Any]:
    return keep(model_dir, SETTINGS["keep_steps"])
