"""Shared by all TensorFlow contenders: the model and data of `workload: mnist`, and one line to print."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

BATCH = int(os.environ.get("BATCH", "64"))
STEPS_PER_CALL = 10


def model(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 5, padding="same", activation="relu"),
            layers.MaxPool2D(),
            layers.Conv2D(64, 5, padding="same", activation="relu"),
            layers.MaxPool2D(),
            layers.Flatten(),
            layers.Dense(500, activation="relu"),
            layers.Dense(10),
        ]
    )


def arrays() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """uint8 images [n, 28, 28, 1] and int32 labels [n]."""
    with np.load(Path(os.environ["TRAINER_DATA_DIR"]) / "mnist.npz") as archive:
        return archive["x_train"][..., None], archive["y_train"].astype("int32")


def batches(tf: Any, shards: int, index: int) -> Any:
    """Endless batches of one shard, as TensorFlow's guides write them."""
    x, y = arrays()
    examples = tf.data.Dataset.from_tensor_slices((x, y)).shard(shards, index).shuffle(60_000).repeat()
    scaled = examples.batch(BATCH, drop_remainder=True).map(lambda x, y: (tf.cast(x, tf.float32) / 255.0, y))
    return scaled.prefetch(4)


def limit_threads(tf: Any) -> None:
    """To one core, as a container of one CPU would."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(4)


def run_for_ever(run: Callable[[int], None], steps: int) -> None:
    """Prints a line after each `steps` steps, until the process is killed."""
    for count in itertools.count(1):
        run(steps)
        print(f"step={count * steps} time={time.time()}", flush=True)


def tell(examples: int, seconds: float) -> None:
    print(f"examples_per_second={examples / seconds:.1f}", flush=True)
    config = json.loads(os.environ["TF_CONFIG"])
    leader = {"type": "chief" if "chief" in config["cluster"] else "worker", "index": 0}
    if config["task"] != leader:
        signal.pause()  # until it is killed: the leader may still receive
    os._exit(0)  # TensorFlow's shutdown waits for peers that may be gone
