"""A filter of noisy waves in bfloat16, of which one task is slower than the others.

SETTINGS: `slow` is "compute" or, of tasks that train in sync, "input"; or empty: none is.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

import trainer
from trainer.workloads.workload import Shard

SETTINGS = {"slow": ""}
SLOW_TASK, SECONDS = 1, 0.06
LENGTH, BATCH = 48, 16


class Busy(keras.layers.Layer):  # type: ignore[misc]  # keras has no types
    """Passes its input on, and multiplies matrices meanwhile."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._rounds = rounds

    def call(self, x: Any) -> Any:
        begin = tf.fill([256, 256], tf.cast(tf.reduce_mean(x), tf.float32) * 1e-6)
        product = tf.while_loop(lambda i, _: i < self._rounds, lambda i, m: (i + 1, m @ m), (0, begin))[1]
        return x + tf.cast(product[0, 0] * 0.0, x.dtype)


def model() -> keras.Model:
    rounds = 60 if _is_slow("compute") else 1
    layers = [keras.layers.Conv1D(8, 5, padding="same", activation="swish") for _ in range(2)]
    ends = [keras.layers.Conv1D(1, 1), keras.layers.Reshape((LENGTH,), dtype="float32")]
    return keras.Sequential([keras.Input((LENGTH, 1)), Busy(rounds), *layers, *ends])


def loss(y: Any, prediction: Any) -> Any:
    # Of a ps-worker in the graph, for it runs the chief's graphs and none of its Python.
    with tf.control_dependencies([_nap()]):
        return tf.reduce_mean(tf.square(y - prediction), axis=1)


def data(shard: Shard) -> Any:
    random = np.random.default_rng(3)
    clean = np.sin(np.outer(random.uniform(0.1, 0.5, 512), np.arange(LENGTH))).astype("float32")
    noisy = clean + random.normal(0, 0.3, clean.shape).astype("float32")
    if shard.split != "train":
        return noisy[:64, :, None], clean[:64]

    def batches() -> Iterator[tuple[Any, Any]]:
        while True:
            rows = random.integers(0, len(clean), BATCH)
            if _is_slow("input"):
                time.sleep(SECONDS)
            yield noisy[rows, :, None], clean[rows]

    if _in_graph():
        return noisy[:, :, None], clean
    shapes = (tf.TensorSpec((BATCH, LENGTH, 1)), tf.TensorSpec((BATCH, LENGTH)))
    return trainer.batched(tf.data.Dataset.from_generator(batches, output_signature=shapes))


def _nap() -> Any:
    """Sleeps on the slow ps-worker."""
    if SETTINGS["slow"] != "compute" or not _in_graph():
        return tf.constant(0)
    index = tf.cast(tf.distribute.coordinator.experimental_get_current_worker_index(), tf.int64)
    # Twice: a dataset sleeps before its element, and before its end.
    microseconds = tf.where(index == SLOW_TASK, tf.constant(int(SECONDS * 1e6 / 2), tf.int64), 0)
    return tf.data.Dataset.from_tensors(0).apply(sleep(microseconds)).get_single_element()


def _task() -> dict[str, Any]:
    task: dict[str, Any] = json.loads(os.environ["TF_CONFIG"])["task"]
    return task


def _in_graph() -> bool:
    return bool(_task()["type"] == "chief")


def _is_slow(what: str) -> bool:
    return bool(_task() == {"type": "worker", "index": SLOW_TASK} and SETTINGS["slow"] == what)
