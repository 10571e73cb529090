"""Lookup layers on ps-workers, compared with the same layers in eager code. Complete jobs: tests/local."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.part("training")

ROOT = Path(__file__).parents[4]
PROGRAM = """
import json, os, socket, sys
import keras, numpy as np, tensorflow as tf
from tests.unit.training.jobs import setup, with_data
from trainer.training.model import batches
from trainer.training.private import tensorflow_patches, tensorflow_private

def free():
    with socket.socket() as each:
        each.bind(("localhost", 0))
        return f"localhost:{each.getsockname()[1]}"

cluster = tf.train.ClusterSpec({"worker": [free(), free()], "ps": [free()]})
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
servers = [
    tf.distribute.Server(cluster, job_name=job, task_index=i, config=config)
    for job in cluster.jobs for i in range(cluster.num_tasks(job))
]
if "unpatched" not in sys.argv:
    tensorflow_patches.capture_at_the_top()
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
L = keras.layers
WORDS = np.array(["a b", "b c", "c d a", "b"] * 6)
NUMBERS = np.arange(24.0, dtype="float32")

def text():
    made = L.TextVectorization(20, output_sequence_length=3)
    made.adapt(WORDS)
    return made

def layers():
    ids = L.IntegerLookup(vocabulary=[0, 3, 5, 7])
    buckets, normal = L.Discretization(num_bins=3), L.Normalization(axis=None)
    buckets.adapt(NUMBERS)
    normal.adapt(NUMBERS)
    return text(), ids, L.CategoryEncoding(5), L.Hashing(10), buckets, normal

def numbers_of(made, words, numbers):
    text, ids, encode, hashed, buckets, normal = made
    parts = [text(words), encode(ids(tf.cast(numbers, tf.int64))[:, None]), hashed(words)[:, None],
             buckets(numbers)[:, None], tf.reshape(normal(numbers), [-1, 1])]
    return tf.concat([tf.cast(part, tf.float64) for part in parts], 1)

with tensorflow_private.tables_on_each_worker(strategy):
    top = text()

def data(shard):
    within = L.StringLookup(vocabulary=["a b", "b"])

    def example(words, number):
        if number > 11.5:  # converted by AutoGraph
            found = within(words)
        else:
            found = 10 * within(words)
        return words, (number, top(words), found)

    dataset = tf.data.Dataset.from_tensor_slices((WORDS, NUMBERS))
    return dataset.shard(shard.count, shard.index).map(example)

job = with_data(setup({"ps": 1, "worker": 2}, train={"batch_size": 4}), data)
with strategy.scope():
    batches.replica_spec(job, job.training)  # as where a model without Input is built
    made = layers()
    first = {"aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA}
    total = tf.Variable(tf.zeros([2, 15], tf.float64), **first)
    done = tf.Variable(tf.zeros([2], tf.int32), **first)
iterator = iter(coordinator.create_per_worker_dataset(batches.per_worker(strategy, job, job.training, lambda: 0)))

def sums(words, more):
    number, read, found = more
    columns = [numbers_of(made, words, number), tf.cast(read, tf.float64), tf.cast(found, tf.float64)[:, None]]
    return tf.reduce_sum(tf.concat(columns, 1), 0)

@tf.function(autograph=False)
def closure(iterator):
    worker = tf.cast(tf.distribute.coordinator.experimental_get_current_worker_index(), tf.int32)

    def step(i):
        def run(batch):
            total.scatter_nd_add([[worker]], [sums(*batch)])
            done.scatter_nd_add([[worker]], [1])
            return True

        return tf.cond(i < 3, lambda: strategy.run(run, (next(iterator),)), lambda: False)

    tf.while_loop(lambda i: i < 4, lambda i: (i + tf.cast(step(i) | True, tf.int32),), (0,))

for _ in range(6):
    coordinator.schedule(closure, args=(iterator,))
coordinator.join()
one = {}
for worker in range(2):
    shard = tf.data.Dataset.from_tensor_slices((WORDS, NUMBERS)).shard(2, worker).batch(12)
    for words, number in shard:
        lookup = L.StringLookup(vocabulary=["a b", "b"])(words)
        found = tf.where(number > 11.5, lookup, 10 * lookup)
        one[worker] = sums(words, (number, top(words), found)).numpy()
passes = done.numpy() / 3  # three batches of four are a worker's examples, once
print(json.dumps({
    "passes": passes.tolist(),
    "found": total.numpy().tolist(),
    "expected": [(passes[worker] * one[worker]).tolist() for worker in range(2)],
}))
sys.stdout.flush()
os._exit(0)
"""


def run(folder: Path, *arguments: str) -> Any:
    program = folder / "program.py"  # a file: AutoGraph reads the source
    program.write_text(PROGRAM)
    return subprocess.run(
        [sys.executable, str(program), *arguments],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_lookup_layers_give_on_ps_workers_what_they_give_elsewhere(tmp_path: Path) -> None:
    """In the model, at the top of the file and in data(), there also beneath an `if` that AutoGraph converts."""
    ended = run(tmp_path)
    assert ended.returncode == 0, ended.stderr[-3000:]
    result = json.loads(ended.stdout.splitlines()[-1])
    assert sum(result["passes"]) == 6
    assert sum(map(sum, result["expected"])) > 100
    for found, expected in zip(result["found"], result["expected"], strict=True):
        assert found == pytest.approx(expected, rel=1e-5)


def test_tensorflow_itself_feeds_a_workers_table_at_the_top_of_a_graph_only(tmp_path: Path) -> None:
    """Once this fails, `tensorflow_patches.capture_at_the_top` can go."""
    ended = run(tmp_path, "unpatched")
    assert ended.returncode != 0
    assert "You must feed a value for placeholder tensor" in ended.stderr
