"""One operation on a GPU of another task; without a GPU there, the error names the devices that there are."""

from __future__ import annotations

import tensorflow as tf

from trainer.workloads.cluster import Cluster, ran_on
from trainer.workloads.types import Settings

SETTINGS: Settings = {"task": 0, "device": "GPU:0"}


def compute(cluster: Cluster) -> dict[str, object]:
    with tf.device(cluster.device(SETTINGS["task"], SETTINGS["device"])):
        y = tf.constant([1.0, 2.0, 3.0]) * 2.0
    cluster.say(f"{y.numpy().tolist()} on {ran_on(y)}")
    return {"y": y.numpy().tolist(), "ran_on": ran_on(y)}
