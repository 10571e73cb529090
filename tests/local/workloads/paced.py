"""One of our models at some 100 steps a second at most, on any machine: for jobs that a test disturbs."""

import importlib
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

DATASET = "digits"
SETTINGS = {"model": "digits"}
MICROSECONDS = 4_000
"""Twice a step: a dataset sleeps before its element, and before its end."""
METRICS = {"accuracy": keras.metrics.sparse_categorical_accuracy}


def model() -> keras.Model:
    return importlib.import_module(f"trainer.workloads.{SETTINGS['model']}").model()


def loss(y: Any, prediction: Any) -> Any:
    # In the graph, for a ps-worker runs the chief's graphs and none of its Python.
    nap = tf.data.Dataset.from_tensors(0).apply(sleep(MICROSECONDS)).get_single_element()
    with tf.control_dependencies([nap]):
        return keras.losses.sparse_categorical_crossentropy(y, prediction, from_logits=True)
