"""TensorFlow's documented way, as one task: tf_keras `fit` under MultiWorkerMirrored or ParameterServer.

    python peer_tf_keras.py STEPS STEPS_PER_EXECUTION      with TF_CONFIG, TRAINER_DATA_DIR

Prints `examples_per_second=N` (of all workers together) on the task that leads.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import numpy as np
import tensorflow as tf

BATCH = 64
WARM_UP_STEPS = 40


def main() -> None:
    steps, per_execution = int(sys.argv[1]), int(sys.argv[2])
    config = json.loads(os.environ["TF_CONFIG"])
    ps = "ps" in config["cluster"]
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(4)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if ps and config["task"]["type"] != "chief":
        tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        ).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver) if ps else tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = cnn()
        model.compile(
            optimizer=tf.keras.optimizers.Adam(1e-4),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=per_execution,
        )
    data: Any
    data = tf.keras.utils.experimental.DatasetCreator(dataset) if ps else None
    if data is None:
        data = strategy.distribute_datasets_from_function(dataset)
    model.fit(data, epochs=1, steps_per_epoch=WARM_UP_STEPS, verbose=0)
    begun = time.perf_counter()
    model.fit(data, epochs=1, steps_per_epoch=steps, verbose=0)
    examples = steps * BATCH * (1 if ps else strategy.num_replicas_in_sync)
    if config["task"]["index"] == 0:
        print(f"examples_per_second={examples / (time.perf_counter() - begun):.1f}", flush=True)
    os._exit(0)


def cnn() -> Any:
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Conv2D(32, 5, padding="same", activation="relu", input_shape=(28, 28, 1)),
            layers.MaxPool2D(),
            layers.Conv2D(64, 5, padding="same", activation="relu"),
            layers.MaxPool2D(),
            layers.Flatten(),
            layers.Dense(500, activation="relu"),
            layers.Dense(10),
        ]
    )


def dataset(context: Any) -> Any:
    with np.load(Path(os.environ["TRAINER_DATA_DIR"]) / "mnist.npz") as archive:
        x, y = archive["x_train"][..., None], archive["y_train"].astype("int32")
    examples = tf.data.Dataset.from_tensor_slices((x, y))
    examples = examples.shard(context.num_input_pipelines, context.input_pipeline_id).shuffle(60_000).repeat()
    batches = examples.batch(BATCH, drop_remainder=True)
    return batches.map(lambda x, y: (tf.cast(x, tf.float32) / 255.0, y)).prefetch(4)


if __name__ == "__main__":
    main()
