"""Digits whose every step takes SETTINGS["seconds"]."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

from trainer.workloads.digits import model as model

DATASET = "digits"
SETTINGS = {"seconds": 1.2}
METRICS: dict[str, Any] = {}


def loss(y: Any, prediction: Any) -> Any:
    # Twice: a dataset sleeps before its element, and before its end.
    microseconds = int(SETTINGS["seconds"] * 1e6 / 2)
    nap = tf.data.Dataset.from_tensors(0).apply(sleep(microseconds)).get_single_element()
    with tf.control_dependencies([nap]):
        return keras.losses.sparse_categorical_crossentropy(y, prediction, from_logits=True)
