"""A model that counts its own steps: each appends a line with its time to a file, whatever trainer says of it.

The file's name is new in each process that builds the model: a life of the training. Under parameter_server the chief
builds it, and the workers run its graph and write the lines; otherwise each worker writes those of its own steps.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

DATASET = "digits"
SETTINGS: dict[str, Any] = {
    "counts": "",  # the folder of the lines
    "slow_checkpoint": 0,  # the step whose checkpoint the disk takes slow_seconds to write
    "slow_seconds": 0.0,
    "evaluation_seconds": 0.1,  # of each batch
}
STEP_MICROSECONDS = 4_000
"""Twice a step: a dataset sleeps before its element, and before its end."""
METRICS = {"accuracy": keras.metrics.sparse_categorical_accuracy}
LIFE = time.time_ns()
fsync = os.fsync


def slow_fsync(fd: Any) -> None:
    """A disk that is slow for one checkpoint, so that something can happen to a task while it is written."""
    path = Path(f"/proc/self/fd/{fd}").readlink()
    if path.match(f".tmp-step-{SETTINGS['slow_checkpoint']:08d}-*/variables.npz"):
        time.sleep(SETTINGS["slow_seconds"])
    fsync(fd)


os.fsync = slow_fsync


def nap(microseconds: int) -> Any:
    # In the graph, for a ps-worker runs the chief's graphs and none of its Python.
    return tf.data.Dataset.from_tensors(0).apply(sleep(microseconds)).get_single_element()


class Counted(keras.layers.Layer):  # type: ignore[misc]
    """Gives back its input; writes the line of a training step."""

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            with tf.control_dependencies([nap(STEP_MICROSECONDS)]):
                line = tf.strings.as_string(tf.timestamp(), precision=6)
            task = json.loads(os.environ["TF_CONFIG"])["task"]
            file = Path(SETTINGS["counts"]) / f"{task['type']}-{task['index']}-{LIFE}"
            done = tf.print(line, output_stream=f"file://{file}")
        else:
            done = nap(round(SETTINGS["evaluation_seconds"] * 5e5))
        with tf.control_dependencies([done]):
            return tf.identity(x)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


def model() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8)),
            layers.Flatten(),
            Counted(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def loss(y: Any, prediction: Any) -> Any:
    return keras.losses.sparse_categorical_crossentropy(y, prediction, from_logits=True)
