"""TensorFlow values and an adapted layer at the top of the file."""

from typing import Any

import keras
import tensorflow as tf

from trainer.workloads import datasets

DATASET = "digits"
PIXELS = datasets.load("digits")["x_train"].reshape(-1, 64).astype("float32")
NORMAL = keras.layers.Normalization()
NORMAL.adapt(PIXELS)
SCALE = tf.constant(2.0)


def model() -> Any:
    return keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), NORMAL, keras.layers.Dense(10)])


def loss(y: Any, prediction: Any) -> Any:
    return SCALE * tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y, tf.int32), prediction)
