"""Which exchanges are found in the step of compiled models on two replicas of multi_worker_mirrored.

`python -m tests.unit.training.exchanges CASE...` prints a line of JSON for each: it needs two CPU devices, which a
process can be given only before its first operation.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import keras
import tensorflow as tf

from tests.unit.training import models
from tests.unit.training.jobs import setup
from trainer.training.exchange import step_time
from trainer.training.model import batches
from trainer.training.model.state import build_state, prepare
from trainer.training.model.step import make_step
from trainer.training.private import tensorflow_patches
from trainer.workloads.types import Strategy


def exchanges(strategy: Strategy, case: str) -> list[list[str]]:
    """The types of the operations in each group."""
    float16 = case in models.FLOAT16
    keras.mixed_precision.set_dtype_policy("mixed_float16" if float16 else "float32")
    make, data = models.CASES[case]
    examples = tf.data.Dataset.from_tensor_slices(data() if callable(data) else data)
    train = {"batch_size": 16, "mixed_precision": "float16" if float16 else "none"}
    one = setup({"worker": {"replicas": 1, "cpu_devices": 2}}, strategy="multi_worker_mirrored", train=train)
    job = replace(one, workload=replace(one.workload, model=make, data=lambda shard: examples), arrays=None)
    with strategy.scope():
        state = build_state(job)
        prepare(strategy, job, state, job.training)
        step = make_step(strategy, job, state, batches.replica_spec(job, job.training))
    found: list[list[str]] = []

    @tf.function(autograph=False)
    def call(batch: object) -> None:
        with step_time.added() as made:
            strategy.run(step.run, (batch,))
        found[:] = [sorted({op.type for op in group}) for _, group in step_time.exchanges(made.operations)]

    call.get_concrete_function(next(iter(batches.synchronous(strategy, job, job.training, 0))))
    return found


if __name__ == "__main__":
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    tensorflow_patches.use_cpu_devices(2)
    replicas = tf.distribute.MultiWorkerMirroredStrategy()
    for name in sys.argv[1:]:
        print(json.dumps({name: exchanges(replicas, name)}), flush=True)
