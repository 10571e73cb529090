"""One of our models at some 100 steps a second at most, on any machine: for jobs that something must happen to."""

import importlib
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

DATASET = "digits"
SETTINGS = {"model": "digits"}
MICROSECONDS = 5_000
"""Twice a step: a dataset sleeps before its example, and before its end."""


def model() -> keras.Model:
    return importlib.import_module(f"trainer.workloads.{SETTINGS['model']}").model()


def loss(y: Any, prediction: Any) -> Any:
    # In the graph, for a ps-worker runs the chief's graphs and none of its Python.
    nap = tf.data.Dataset.range(1).apply(sleep(MICROSECONDS)).reduce(tf.constant(0, tf.int64), lambda _, one: one)
    with tf.control_dependencies([nap]):
        return keras.losses.sparse_categorical_crossentropy(y, prediction, from_logits=True)
