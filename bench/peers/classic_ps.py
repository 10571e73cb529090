"""The method of the first tutorials, in compat.v1: between-graph replication, feed_dict, a session on each worker.

    python classic_ps.py WARM_UP STEPS      as one ps or worker, with TF_CONFIG and TRAINER_DATA_DIR

Steps are those of all workers together. Each worker prints `examples_per_second=N`, of all of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import cnn
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def main() -> None:
    warm_up, steps = int(sys.argv[1]), int(sys.argv[2])
    task = json.loads(os.environ["TF_CONFIG"])
    job, index, cluster = task["task"]["type"], task["task"]["index"], tf.train.ClusterSpec(task["cluster"])
    v1.disable_eager_execution()
    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=4)
    server = v1.train.Server(cluster, job_name=job, task_index=index, config=config)
    if job == "ps":
        server.join()
    setter = v1.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)
    with v1.device(setter):
        x, y = v1.placeholder(tf.float32, [None, 784]), v1.placeholder(tf.int64, [None])
        counter = v1.train.get_or_create_global_step()
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits(x)))
        train = v1.train.AdamOptimizer(1e-4).minimize(loss, global_step=counter)
        here = v1.get_variable("here", [], tf.int32, v1.zeros_initializer(), trainable=False)
        arrive = v1.assign_add(here, 1, use_locking=True)
    images, labels = cnn.arrays()
    flat, numbers = images.reshape(-1, 784).astype("float32") / 255, np.random.default_rng(index)
    # MonitoredTrainingSession with a shorter wait: a worker that comes too early looks again after 30 s there.
    manager = v1.train.SessionManager(
        ready_op=v1.report_uninitialized_variables(), graph=v1.get_default_graph(), recovery_wait_secs=1
    )
    if index == 0:
        session = manager.prepare_session(server.target, init_op=v1.global_variables_initializer(), config=config)
    else:
        session = manager.wait_for_session(server.target, config=config)
    session.run(arrive)

    def one() -> int:
        chosen = numbers.integers(0, len(flat), cnn.BATCH)
        return int(session.run([train, counter], {x: flat[chosen], y: labels[chosen]})[1])

    first = one()
    while first < warm_up or session.run(here) < len(task["cluster"]["worker"]):
        first = one()
    begun, last = time.perf_counter(), first
    while last < first + steps:
        last = one()
    cnn.tell((last - first) * cnn.BATCH, time.perf_counter() - begun)


def logits(x: Any) -> Any:
    def weights(name: str, shape: list[int], deviation: float) -> Any:
        return v1.get_variable(name, shape, initializer=v1.truncated_normal_initializer(stddev=deviation))

    def layer(name: str, inputs: Any, shape: list[int], deviation: float) -> Any:
        product = tf.nn.conv2d(inputs, weights(name, shape, deviation), 1, "SAME")
        return tf.nn.max_pool2d(tf.nn.relu(product + weights(f"{name}_bias", shape[-1:], 0.01)), 2, 2, "SAME")

    small = layer("conv2", layer("conv1", tf.reshape(x, [-1, 28, 28, 1]), [5, 5, 1, 32], 0.1), [5, 5, 32, 64], 0.05)
    hidden = tf.matmul(tf.reshape(small, [-1, 3136]), weights("dense1", [3136, 500], 0.02))
    hidden = tf.nn.relu(hidden + weights("dense1_bias", [500], 0.01))
    return tf.matmul(hidden, weights("dense2", [500, 10], 0.05)) + weights("dense2_bias", [10], 0.01)


if __name__ == "__main__":
    main()
