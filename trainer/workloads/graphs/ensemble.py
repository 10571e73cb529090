"""A model for each task, trained there on its shard of the digits; their predictions are averaged."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from trainer.workloads import datasets
from trainer.workloads.cluster import Cluster, ran_on
from trainer.workloads.types import Settings, Tensor

SETTINGS: Settings = {"steps": 300, "hidden": 32, "learning_rate": 0.5, "batch_size": 32, "seed": 1}


def compute(cluster: Cluster) -> dict[str, object]:
    arrays = datasets.load("digits", None)
    order = np.random.default_rng(SETTINGS["seed"]).permutation(len(arrays["x_train"]))
    shards = np.array_split(order, cluster.tasks)
    test = tf.constant(_pixels(arrays["x_test"]))
    devices = cluster.every_task()

    @tf.function(autograph=False)
    def predictions(x: list[Tensor], y: list[Tensor], x_test: Tensor) -> Tensor:
        # One graph: its parts on different tasks run at the same time.
        outputs = []
        for number, device in enumerate(devices):
            with tf.device(device):
                outputs.append(_train_and_predict(x[number], y[number], x_test, seed=SETTINGS["seed"] + number))
        return outputs

    x = [tf.constant(_pixels(arrays["x_train"][shard])) for shard in shards]
    y = [tf.constant(arrays["y_train"][shard].astype(np.int32)) for shard in shards]
    each = predictions(x, y, test)
    truth = arrays["y_test"]
    singles = [float(np.mean(p.numpy().argmax(1) == truth)) for p in each]
    for accuracy, shard, prediction in zip(singles, shards, each, strict=True):
        cluster.say(f"trained on {len(shard)} digits: accuracy {accuracy:.4f} on {ran_on(prediction)}")
    together = float(np.mean(sum(p.numpy() for p in each).argmax(1) == truth))
    cluster.say(f"the mean of the single ones is {np.mean(singles):.4f}, all together {together:.4f}")
    return {"single": singles, "mean_of_single": float(np.mean(singles)), "ensemble": together}


def _train_and_predict(x: Tensor, y: Tensor, x_test: Tensor, seed: int) -> Tensor:
    """Probabilities [examples, 10] of a network with one hidden layer, after gradient descent on (x, y).

    Plain tensors in a loop of the graph: nothing is kept, so nothing needs a variable.
    """
    hidden, batch = SETTINGS["hidden"], SETTINGS["batch_size"]
    shapes = [(x.shape[1], hidden), (hidden,), (hidden, 10), (10,)]
    start = [
        tf.random.stateless_normal(shape, seed=[seed, i]) * (shape[0] ** -0.5 if len(shape) == 2 else 0.0)
        for i, shape in enumerate(shapes)
    ]

    def logits(weights: Tensor, inputs: Tensor) -> Tensor:
        return tf.nn.relu(inputs @ weights[0] + weights[1]) @ weights[2] + weights[3]

    def step(i: Tensor, *weights: Tensor) -> Tensor:
        rows = tf.random.stateless_uniform([batch], seed=[seed, i], maxval=x.shape[0], dtype=tf.int32)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            output = logits(weights, tf.gather(x, rows))
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.gather(y, rows), logits=output)
            )
        gradients = tape.gradient(loss, weights)
        return i + 1, *(w - SETTINGS["learning_rate"] * g for w, g in zip(weights, gradients, strict=True))

    _, *weights = tf.while_loop(lambda i, *_: i < SETTINGS["steps"], step, (0, *start))
    return tf.nn.softmax(logits(weights, x_test))


def _pixels(images: Tensor) -> Tensor:
    return images.reshape(len(images), -1).astype(np.float32) / 16
