"""A small model of digits, at some 25 steps a second at most, so that a job can be stopped in the middle."""

import json
import os
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

DATASET = "digits"
MICROSECONDS = 20_000
"""Twice a step: a dataset sleeps before its element, and before its end."""
METRICS = {
    "accuracy": keras.metrics.sparse_categorical_accuracy,
    "top": keras.metrics.sparse_top_k_categorical_accuracy,
}
OUTPUT = os.environ.get("COMPATIBILITY_OUTPUT")
"""Folder for what the callbacks have and the weights with which training begins."""


def model() -> keras.Model:
    layers = [keras.layers.Rescaling(1 / 16), keras.layers.Flatten(), keras.layers.Dense(8, activation="relu")]
    return keras.Sequential([keras.Input((8, 8)), *layers, keras.layers.Dense(10)])


def loss(y: Any, prediction: Any) -> Any:
    nap = tf.data.Dataset.from_tensors(0).apply(sleep(MICROSECONDS)).get_single_element()
    with tf.control_dependencies([nap]):
        return keras.losses.sparse_categorical_crossentropy(y, prediction, from_logits=True)


class Epochs(keras.callbacks.Callback):
    """Counts the epochs of the whole job."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs += 1

    def get_state(self) -> dict[str, Any]:
        return {"epochs": self.epochs}

    def set_state(self, state: dict[str, Any]) -> None:
        self.epochs = state["epochs"]


class Plain(keras.callbacks.Callback):
    """Has a state, and no methods for it."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[int] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.ends.append(epoch)


class Begin(keras.callbacks.Callback):
    """Writes the weights, and the state of the other callbacks, with which training begins."""

    def __init__(self, epochs: Epochs, stopping: keras.callbacks.EarlyStopping) -> None:
        super().__init__()
        self._others = lambda: {"epochs": epochs.epochs, "best": float(stopping.best)}
        self._written = False

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if OUTPUT and not self._written:
            self._written = True
            weights = [each.tolist() for each in self.model.get_weights()]
            Path(OUTPUT, "begin.json").write_text(json.dumps({"weights": weights, **self._others()}))


def callbacks() -> list[keras.callbacks.Callback]:
    epochs, stopping = Epochs(), keras.callbacks.EarlyStopping("loss", patience=100)
    slower = keras.callbacks.ReduceLROnPlateau("loss", patience=100)
    return [epochs, Plain(), stopping, slower, Begin(epochs, stopping)]
