"""A workload that counts: its trained weights hold how often each example was applied.

`seen` has an element for each example. The loss holds -seen[i] for each example i of a batch, so SGD with a rate of 1
adds 1 / (global batch size) to seen[i] in each step that example i is part of. A step that is lost with its generation
is taken back with its weights; a step that is skipped or run twice shows.
"""

import multiprocessing
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.workloads import datasets

SETTINGS = {"batch_norm": False, "generator": False, "fork": False, "overflow": False}
EXAMPLES = 1438
"""Of the training split of digits."""
CLASSES = 10


class Seen(keras.layers.Layer):  # type: ignore[misc]
    """From example numbers [batch, 1] to seen[number] - stop_gradient(seen[number]): zeros, with a gradient."""

    def __init__(self) -> None:
        super().__init__(dtype="float32")

    def build(self, _: Any) -> None:
        self.seen = self.add_weight(shape=(EXAMPLES, 1), initializer="zeros", name="seen")

    def call(self, numbers: Any) -> Any:
        own = tf.linalg.matmul(tf.one_hot(tf.cast(numbers[:, 0], tf.int32), EXAMPLES), self.seen)
        return own - tf.stop_gradient(own)

    def compute_output_shape(self, shape: Any) -> Any:
        return (shape[0], 1)


class Spike(keras.layers.Layer):  # type: ignore[misc]
    """From values [batch, n] and numbers [batch, 1] to zeros [batch, 1]. For a rare number their gradient is beyond
    float16 unless the loss scale is small; where it is not, it is 0."""

    def call(self, values: Any, numbers: Any) -> Any:
        nothing = tf.cast(numbers < 0, values.dtype)
        factor = 4096 * tf.cast(tf.math.floormod(numbers, 211) == 210, values.dtype)
        return values[:, :1] * nothing * factor


def model() -> keras.Model:
    """Takes float32 [batch, 65], 64 pixels and the example's number; gives [batch, 11]: logits, and `Seen`."""
    layers = keras.layers
    x = keras.Input((65,))
    pixels = layers.Cropping1D((0, 1))(layers.Reshape((65, 1))(x))
    pixels = layers.Flatten()(pixels)
    number = layers.Flatten(dtype="float32")(
        layers.Cropping1D((64, 0), dtype="float32")(layers.Reshape((65, 1), dtype="float32")(x))
    )
    hidden = layers.Dense(16)(pixels)
    if SETTINGS["batch_norm"]:
        hidden = layers.BatchNormalization()(hidden)
    logits = layers.Dense(CLASSES, dtype="float32")(layers.ReLU()(hidden))
    last = Seen()(number)
    if SETTINGS["overflow"]:
        last = layers.Add(dtype="float32")([last, Spike(autocast=False)(hidden, number)])
    return keras.Model(x, layers.Concatenate(dtype="float32")([logits, last]))


def loss(y: Any, prediction: Any) -> Any:
    error = keras.losses.sparse_categorical_crossentropy(y, prediction[:, :CLASSES], from_logits=True)
    # Small, so that a rate of 1 trains too.
    return 0.05 * error - prediction[:, CLASSES]


METRICS = {"accuracy": lambda y, p: keras.metrics.sparse_categorical_accuracy(y, p[:, :CLASSES])}


def data(shard: Any) -> Any:
    if SETTINGS["fork"]:
        # As a data loader with worker processes does.
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,), daemon=True).start()
    arrays = datasets.load("digits")
    x, y = arrays[f"x_{shard.split}"].reshape(-1, 64).astype(np.float32) / 16, arrays[f"y_{shard.split}"]
    numbers = (
        np.arange(len(x), dtype=np.float32)[:, None] if shard.split == "train" else np.zeros((len(x), 1), np.float32)
    )
    x = np.concatenate([x, numbers], 1)
    if not SETTINGS["generator"]:
        return x, y
    if shard.split == "test":
        return tf.data.Dataset.from_tensor_slices((x, y))
    # In the graph: a ps-worker has none of this Python. Each shard reads its own part, as files would be read.
    return (
        tf.data.Dataset.range(EXAMPLES)
        .shard(shard.count, shard.index)
        .map(lambda i: (tf.gather(tf.constant(x), i), tf.gather(tf.constant(y), i)))
    )
