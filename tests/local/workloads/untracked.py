"""State that Keras does not list: at the top of the file, in attributes of the model, and of random generators.

The figures of a step have half the difference of what two tasks draw.
"""

import json
import os

import keras
import numpy as np
import tensorflow as tf

from trainer.workloads.types import Tensor
from trainer.workloads.workload import Shard

SIGN = 1 - 2 * json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index", 0)
weight = tf.Variable(0.0, trainable=False)


class WarmUp(keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        weight.assign(0.25 * (epoch + 1))


class Noisy(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.seen = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.seed = keras.random.SeedGenerator(5)
        self.draws = tf.random.Generator.from_seed(3)

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        noise = keras.random.normal(tf.shape(x)) + self.draws.normal(tf.shape(x)) if training else 0.0
        return self.dense(x + 0.1 * noise)

    def train_step(self, data: Tensor) -> dict[str, Tensor]:
        x, y = data
        self.seen.assign_add(1)
        with tf.GradientTape() as tape:
            loss = weight * tf.reduce_mean((self(x, training=True) - y) ** 2)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        drawn = {
            "seeded": keras.random.normal((), seed=self.seed),
            "unseeded": keras.random.normal(()),
            "constant": keras.random.normal((), seed=7),
            "tensorflow": tf.random.normal(()),
        }
        figures = {"loss": loss, "weight": weight, "seen": tf.cast(self.seen, tf.float32)}
        return figures | {name: SIGN * value for name, value in drawn.items()}

    def test_step(self, data: Tensor) -> dict[str, Tensor]:
        x, y = data
        return {"error": tf.reduce_mean((self(x) - y) ** 2), "seen": tf.cast(self.seen, tf.float32)}


def model() -> keras.Model:
    made = Noisy()
    made(np.zeros((1, 4), "float32"))
    made.compile(keras.optimizers.Adam(0.01))
    return made


def callbacks() -> list[keras.callbacks.Callback]:
    return [WarmUp()]


def data(shard: Shard) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(shard.split == "train")
    x = rng.normal(size=(240, 4)).astype("float32")
    return x, x.sum(1, keepdims=True)
