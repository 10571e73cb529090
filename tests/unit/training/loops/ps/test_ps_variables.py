"""Variables on two ps: where they are, and their snapshot."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.part("training")

ROOT = Path(__file__).parents[5]
PROGRAM = """
import collections, json, os, sys
import keras, numpy as np, tensorflow as tf
from trainer.targets.local import ports
from trainer.training.private import tensorflow_patches
from trainer.training.private.adam import Adam
from trainer.training.model.state import TrainState

names = ["worker:0", "ps:0", "ps:1"]
with ports.reserve(names, None) as taken:
    worker, *ps = [f"localhost:{taken[name]}" for name in names]
cluster = tf.train.ClusterSpec({"worker": [worker], "ps": ps})
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
servers = [
    tf.distribute.Server(cluster, job_name=job, task_index=i, config=config)
    for job in cluster.jobs for i in range(cluster.num_tasks(job))
]
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
)
if sys.argv[1] == "by_bytes":
    tensorflow_patches.place_by_bytes(strategy)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    model = keras.Sequential([keras.Input((60,)), *(keras.layers.Dense(60) for _ in range(12))])
    optimizer = Adam()
    optimizer.build(model.trainable_variables)
state = TrainState(model, optimizer)
loads = collections.Counter()
for _, v in state.variables:
    loads[v.value.device] += 4 * int(np.prod(v.shape))
slots = zip(model.trainable_variables, optimizer._momentums, optimizer._velocities, strict=True)
beside = all(v.value.device == m.value.device == s.value.device for v, m, s in slots)

@tf.function(autograph=False)
def step():
    variables = model.trainable_variables
    strategy.run(lambda: optimizer.apply([tf.ones(v.shape) for v in variables], variables))

def values():
    return {name: np.array(v.value) for name, v in state.variables}

coordinator.schedule(step)
coordinator.join()
before, taken = values(), state.snapshot()
coordinator.schedule(step)
coordinator.join()
now = values()
print(json.dumps({
    "loads": sorted(loads.values()), "beside": beside,
    "exact": all((np.asarray(each) == before[name]).all() for name, each in taken.items()),
    "changed": sum(bool((now[name] != before[name]).any()) for name in now),
    "there": all("/job:ps/" in each.backing_device for each in taken.values()),
}), flush=True)
os._exit(0)  # the end of a cluster is another test's subject
"""


def found(how: str) -> dict[str, Any]:
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, cwd=ROOT, env=environ, timeout=120,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def by_bytes() -> dict[str, Any]:
    return found("by_bytes")


def test_variables_are_spread_over_the_ps_by_bytes(by_bytes: dict[str, Any]) -> None:
    least, most = by_bytes["loads"]
    assert most <= 1.2 * least
    assert by_bytes["beside"], "what Adam keeps for a variable is on its ps, where the update runs"
    least, most = found("as_tensorflow_does")["loads"]
    assert most > 1.2 * least, "the patch is not needed any more"


def test_a_snapshot_of_variables_on_ps_stays_there_while_they_change(by_bytes: dict[str, Any]) -> None:
    assert by_bytes["there"]
    assert by_bytes["exact"]
    assert by_bytes["changed"] == 24 + 2 * 24 + 1, "all but the learning rate"
