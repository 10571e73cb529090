"""TensorFlow's documented way, as one task: tf_keras `fit` under MultiWorkerMirrored or ParameterServer.

    python tf_keras_fit.py WARM_UP STEPS STEPS_PER_EXECUTION      with TF_CONFIG and TRAINER_DATA_DIR

STEPS are epochs of WARM_UP steps each.

Prints `examples_per_second=N`, of all workers together, on the task that leads.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
sys.path.append(str(Path(__file__).parents[2] / ".venv-peers" / "tf_keras"))  # `make bench` installs it there
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import cnn
import tensorflow as tf


def main() -> None:
    warm_up, steps, per_execution = (int(word) for word in sys.argv[1:])
    config = json.loads(os.environ["TF_CONFIG"])
    ps = "ps" in config["cluster"]
    cnn.limit_threads(tf)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if ps and config["task"]["type"] != "chief":
        # A server takes no setting of tf.config; with one inter-op thread, as on one core, its dataset waits for ever.
        threads = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=4)
        tf.distribute.Server(
            resolver.cluster_spec(), resolver.task_type, resolver.task_id, protocol="grpc", config=threads
        ).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver) if ps else tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = cnn.model(tf.keras)
        model.compile(
            optimizer=tf.keras.optimizers.Adam(1e-4),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=per_execution,
        )
    data: Any
    if ps:
        data = tf.keras.utils.experimental.DatasetCreator(dataset)
    else:
        data = strategy.distribute_datasets_from_function(dataset)
    # One call: each one recreates its iterators and refills their shuffle buffers.
    clock = Clock()
    model.fit(data, epochs=1 + steps // warm_up, steps_per_epoch=warm_up, verbose=0, callbacks=[clock])
    examples = (len(clock.ends) - 1) * warm_up * cnn.BATCH * (1 if ps else strategy.num_replicas_in_sync)
    cnn.tell(examples, clock.ends[-1] - clock.ends[0])


class Clock(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """When each epoch ended, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.ends.append(time.perf_counter())


def dataset(context: Any) -> Any:
    return cnn.batches(tf, context.num_input_pipelines, context.input_pipeline_id)


if __name__ == "__main__":
    main()
