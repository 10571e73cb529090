"""Small matrix products on named devices, with the device that each ran on."""

from __future__ import annotations

import tensorflow as tf

from trainer.workloads.cluster import Cluster, ran_on

SETTINGS = {"device": "CPU:0"}


def compute(cluster: Cluster) -> dict[str, object]:
    first = cluster.device(0, SETTINGS["device"])
    second = cluster.device(cluster.tasks - 1, SETTINGS["device"])
    a, b = tf.constant([[1.0, 2, 3], [4, 5, 6]]), tf.constant([[1.0, 2], [3, 4], [5, 6]])
    with tf.device(first):
        product = tf.matmul(a, b)
        small = tf.matmul(tf.constant([[1.0, 2], [3, 4]]), tf.constant([[3.0, 4], [1, 2]]))
    with tf.device(second):
        again = tf.matmul(a, b)
    total = product + again
    found = {"product": product, "product again": again, "their sum": total, "small": small}
    for name, tensor in found.items():
        cluster.say(f"{name} = {tensor.numpy().astype(int).tolist()} on {ran_on(tensor)}")
    return {
        name: {"value": tensor.numpy().astype(int).tolist(), "ran_on": ran_on(tensor)} for name, tensor in found.items()
    }
