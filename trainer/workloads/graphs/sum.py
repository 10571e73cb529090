"""One sum on two tasks: y = (x + 300) + (x - 66)."""

from __future__ import annotations

import tensorflow as tf

from trainer.workloads.cluster import Cluster, ran_on

SETTINGS = {"x": 2}


def compute(cluster: Cluster) -> dict[str, object]:
    x = tf.constant(SETTINGS["x"])
    with tf.device(cluster.device(0)):
        y1 = x + 300
    with tf.device(cluster.device(cluster.tasks - 1)):
        y2 = x - 66
    y = y1 + y2
    for name, tensor in {"y1": y1, "y2": y2, "y": y}.items():
        cluster.say(f"{name} = {int(tensor)} on {ran_on(tensor)}")
    return {"y": int(y), "ran_on": {"y1": ran_on(y1), "y2": ran_on(y2), "y": ran_on(y)}}
