"""A workload that counts: its trained weights hold how often each example was applied.

`seen` has an element for each example. The loss holds -seen[i] for each example i of a batch, so SGD with a rate of 1
adds 1 / (global batch size) to seen[i] in each step that example i is part of. A step that is lost with its generation
is taken back with its weights; a step that is skipped or run twice shows. So does one in what Keras does not list, the
setting `unlisted`: a callback counts epochs in it, and the steps count themselves. The setting `differs` makes one task
unlike the others. `lives` is a folder in which each process that reads the training data leaves a file. With `nap`, a
number of microseconds, a step takes twice that at least, so that there is time for what happens to the job.
"""

import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

from trainer.workloads import datasets

SETTINGS = {
    "batch_norm": False,
    "generator": False,
    "fork": False,
    "overflow": False,
    "unlisted": False,
    "at_the_top": False,
    "differs": "",
    "unlike": "",
    "lives": "",
    "nap": 0,
}
EXAMPLES = 1438
"""Of the training split of digits."""
CLASSES = 10
DRAWN = 8
"""Random numbers of a step."""
MISSING = 7
"""Examples that a task lacks whose number of them differs."""

TASK = "{type}:{index}".format(**json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "", "index": ""}))

epoch_number = tf.Variable(1.0, trainable=False, name="epoch_number")
"""From 1, by a callback. Under parameter_server workers have no such variable."""


def differs(what: str) -> bool:
    return bool(SETTINGS["differs"] == what and SETTINGS["unlike"] == TASK)


class CountEpochs(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts those that begin at the top of the file, and those that end in an attribute of a layer."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        epoch_number.assign(epoch + 1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        (layer,) = (each for each in self.model.layers if isinstance(each, Unlisted))
        layer.epochs_ended.assign_add(1)


def callbacks() -> list[keras.callbacks.Callback]:
    return [CountEpochs()] if SETTINGS["unlisted"] else []


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


class Unlisted(keras.layers.Layer):  # type: ignore[misc]
    """From anything [batch, n] to [batch, 2]: the epochs that have ended, and the steps that were made."""

    def __init__(self) -> None:
        super().__init__(dtype="float32")
        self.epochs_ended = tf.Variable(0.0, trainable=False, name="epochs_ended")
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.steps_made = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=first, name="steps_made")
        self.draws = tf.random.Generator.from_seed(3)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.steps_made.assign_add(1)
            self.draws.uniform((DRAWN,))
        row = tf.stack([tf.convert_to_tensor(self.epochs_ended), tf.cast(self.steps_made, tf.float32)])
        return tf.tile(row[None], [tf.shape(x)[0], 1])

    def compute_output_shape(self, shape: Any) -> Any:
        return (shape[0], 2)


class Spike(keras.layers.Layer):  # type: ignore[misc]
    """From values [batch, n] and numbers [batch, 1] to zeros [batch, 1]. For a rare number their gradient is beyond
    float16 unless the loss scale is small; where it is not, it is 0."""

    def call(self, values: Any, numbers: Any) -> Any:
        nothing = tf.cast(numbers < 0, values.dtype)
        factor = 4096 * tf.cast(tf.math.floormod(numbers, 211) == 210, values.dtype)
        return values[:, :1] * nothing * factor


def model() -> keras.Model:
    """Takes float32 [batch, 65], 64 pixels and the example's number; gives [batch, 11], logits and `Seen`, or
    [batch, 13], with `Unlisted`."""
    layers = keras.layers
    x = keras.Input((65,))
    pixels = layers.Cropping1D((0, 1))(layers.Reshape((65, 1))(x))
    pixels = layers.Flatten()(pixels)
    number = layers.Flatten(dtype="float32")(
        layers.Cropping1D((64, 0), dtype="float32")(layers.Reshape((65, 1), dtype="float32")(x))
    )
    hidden = layers.Dense(16)(pixels)
    if SETTINGS["differs"] == "layers":
        names = sorted(["left", "right"], reverse=differs("layers"))
        hidden = layers.Add()([hidden, *(layers.Dense(16, name=name)(pixels) for name in names)])
    if SETTINGS["batch_norm"]:
        hidden = layers.BatchNormalization()(hidden)
    logits = layers.Dense(CLASSES, dtype="float32")(layers.ReLU()(hidden))
    last = Seen()(number)
    if SETTINGS["overflow"]:
        last = layers.Add(dtype="float32")([last, Spike(autocast=False)(hidden, number)])
    parts = [logits, last, *([Unlisted()(number)] if SETTINGS["unlisted"] else [])]
    return keras.Model(x, layers.Concatenate(dtype="float32")(parts))


def loss(y: Any, prediction: Any) -> Any:
    error = keras.losses.sparse_categorical_crossentropy(y, prediction[:, :CLASSES], from_logits=True)
    if SETTINGS["at_the_top"]:
        error /= epoch_number
    if SETTINGS["nap"]:
        # In the graph, for a ps-worker has none of this Python. Before the element of a dataset, and before its end.
        nap = tf.data.Dataset.from_tensors(0).apply(sleep(SETTINGS["nap"])).get_single_element()
        with tf.control_dependencies([nap]):
            error = tf.identity(error)
    # Small, so that a rate of 1 trains too.
    return 0.05 * error - prediction[:, CLASSES]


def epoch(_: Any, prediction: Any) -> Any:
    return tf.zeros_like(prediction[:, 0]) + (epoch_number if SETTINGS["at_the_top"] else 0.0)


def unlisted(column: int) -> Any:
    """A metric that gives a column of `Unlisted`."""
    return lambda _, p: p[:, CLASSES + 1 + column] if SETTINGS["unlisted"] else tf.zeros_like(p[:, 0])


METRICS = {
    "accuracy": lambda y, p: keras.metrics.sparse_categorical_accuracy(y, p[:, :CLASSES]),
    "epoch": epoch,
    "epochs_ended": unlisted(0),
    "steps_made": unlisted(1),
}


def data(shard: Any) -> Any:
    if SETTINGS["fork"]:
        # As a data loader with worker processes does.
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,), daemon=True).start()
    if SETTINGS["lives"] and shard.split == "train":
        (Path(str(SETTINGS["lives"])) / f"{TASK}-{os.getpid()}").touch()
    arrays = datasets.load("digits")
    x, y = arrays[f"x_{shard.split}"].reshape(-1, 64).astype(np.float32) / 16, arrays[f"y_{shard.split}"]
    numbers = (
        np.arange(len(x), dtype=np.float32)[:, None] if shard.split == "train" else np.zeros((len(x), 1), np.float32)
    )
    x = np.concatenate([x, numbers], 1)
    if shard.split == "train" and differs("examples"):
        return x[:-MISSING], y[:-MISSING]
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
