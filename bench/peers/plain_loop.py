"""TensorFlow's default: a plain MultiWorkerMirrored loop on a Keras 3 model, RING, float32 gradients.

    python plain_loop.py WARM_UP STEPS      as one worker, with TF_CONFIG and TRAINER_DATA_DIR

Without a TF_CONFIG it is a plain tf.function on one device.

Prints `examples_per_second=N`, of all workers together. With 0 STEPS it goes on until it is killed, and prints
`step=N time=T` after each WARM_UP steps.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import cnn
import keras
import tensorflow as tf


def main() -> None:
    warm_up, steps = int(sys.argv[1]), int(sys.argv[2])
    cnn.limit_threads(tf)
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=ring)
    strategy = tf.distribute.get_strategy()
    if "TF_CONFIG" in os.environ:
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    workers = strategy.num_replicas_in_sync
    with strategy.scope():
        model = cnn.model(keras)
        optimizer = keras.optimizers.Adam(1e-4)
        optimizer.build(model.trainable_variables)
    iterator = iter(
        strategy.distribute_datasets_from_function(
            lambda context: cnn.batches(tf, context.num_input_pipelines, context.input_pipeline_id)
        )
    )

    def step(batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True))
            loss = tf.reduce_sum(losses) / (cnn.BATCH * workers)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    def call(iterator: Any) -> Any:
        loss = tf.constant(0.0)
        for _ in tf.range(cnn.STEPS_PER_CALL):
            loss = strategy.reduce("SUM", strategy.run(step, (next(iterator),)), axis=None)
        return loss

    in_graph = tf.function(call)

    def run(count: int) -> None:
        for _ in range(count // cnn.STEPS_PER_CALL):
            float(in_graph(iterator))

    if not steps:
        cnn.run_for_ever(run, warm_up)
    run(warm_up)
    begun = time.perf_counter()
    run(steps)
    cnn.tell(steps * cnn.BATCH * workers, time.perf_counter() - begun)


if __name__ == "__main__":
    main()
