"""Compiled models on two replicas, and by Keras' own fit on one device with the whole batch.

`python -m tests.unit.training.two_replicas CASE...` prints a line of JSON for each: it needs two CPU devices, which a
process can be given only before its first operation.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.unit.training import models
from tests.unit.training.jobs import setup
from trainer.training.exchange.gradients import rows_vary
from trainer.training.model import batches
from trainer.training.model.state import build_state, prepare
from trainer.training.model.step import make_step
from trainer.training.weights.agreement import require_same_rows

BATCH, STEPS = 32, 20


def weights(model: Any) -> list[Any]:
    return [np.array(v) for v in model.variables]


def by_fit(make: Callable[[], Any], examples: Any) -> tuple[list[Any], dict[str, float]]:
    keras.utils.set_random_seed(0)
    model = make()
    logs = model.fit(examples.batch(BATCH), verbose=0, shuffle=False).history
    return weights(model), {name: values[-1] for name, values in logs.items()}


@functools.cache
def replicas() -> Any:
    """One strategy for all cases: each numbers its collectives from 1."""
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def by_two_replicas(make: Callable[[], Any], examples: Any) -> tuple[list[Any], dict[str, float], list[str]]:
    precision = {"float32": "none", "mixed_float16": "float16"}[keras.mixed_precision.dtype_policy().name]
    train = {"batch_size": BATCH // 2, "mixed_precision": precision}
    one = setup({"worker": {"replicas": 1, "cpu_devices": 2}}, strategy="mirrored", train=train)
    job = replace(one, workload=replace(one.workload, model=make, data=lambda shard: examples), arrays=None)
    strategy = replicas()
    with strategy.scope():
        state = build_state(job)
        warnings = prepare(strategy, job, state, job.training)
        step = make_step(strategy, job, state, batches.replica_spec(job, job.training))
    iterator = iter(batches.synchronous(strategy, job, job.training, 0))

    @tf.function(autograph=False)
    def call(count: Any) -> Any:
        def one(i: Any, sums: Any) -> Any:
            _, _, vector = strategy.run(step.run, (next(iterator),))
            return i + 1, sums + tf.add_n(strategy.experimental_local_results(vector))

        return tf.while_loop(lambda i, _: i < count, one, (0, tf.zeros([step.width])))[1]

    sums = call(tf.constant(1)).numpy()
    require_same_rows(job, state)
    ones = rows_vary(state.optimizers.values())
    assert ones == (make is models.embedded)
    for count in [1] * (STEPS - 1) if ones else [STEPS - 1]:
        sums += call(tf.constant(count)).numpy()
    return weights(state.model), step.figures(sums, 2 * STEPS), warnings


def compare(case: str) -> dict[str, Any]:
    keras.mixed_precision.set_dtype_policy("mixed_float16" if case in models.FLOAT16 else "float32")
    make, data = models.CASES[case]
    data = data() if callable(data) else data
    examples = tf.data.Dataset.from_tensor_slices(data)
    keras.utils.set_random_seed(0)
    begin = weights(make())
    one, expected = by_fit(make, examples)
    two, found, warnings = by_two_replicas(make, examples)
    return {
        "moved": max(float(np.abs(a - b).max()) for a, b in zip(begin, one, strict=True)),
        "apart": max(float(np.abs(a - b).max()) for a, b in zip(one, two, strict=True)),
        "expected": expected,
        "found": found,
        "warnings": warnings,
    }


if __name__ == "__main__":
    replicas()
    for name in sys.argv[1:]:
        print(json.dumps({"case": name, **compare(name)}), flush=True)
