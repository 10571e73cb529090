"""Which part of the data a task reads. Complete jobs: tests/local."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.unit.training.jobs import setup, with_data
from trainer.job.cluster import tasks_of
from trainer.training.model import batches
from trainer.workloads.workload import Shard


# Each: tasks of the job, which of them this is, and the part of the training data that it asks for.
@pytest.mark.parametrize(
    ("tasks", "task", "shard"),
    [
        ({"worker": 1}, 0, (0, 1)),
        ({"worker": 3}, 2, (2, 3)),
        ({"chief": 1, "worker": 2}, 0, (0, 3)),
        ({"chief": 1, "worker": 2}, 2, (2, 3)),
        ({"worker": 2, "ps": 1}, 0, (0, 2)),
        ({"worker": 3, "ps": 2}, 0, (0, 3)),
    ],
)
def test_each_task_asks_for_its_own_part_and_a_coordinator_for_its_first_workers(
    tasks: dict[str, Any], task: int, shard: tuple[int, int]
) -> None:
    asked: list[Shard] = []

    def data(shard: Shard) -> Any:
        asked.append(shard)
        return np.zeros((8, 2)), np.zeros(8)

    job = with_data(setup(tasks, train={"seed": 7}), data)
    own = tasks_of(job.spec)[task]
    replace(job, task=own).training.count()
    assert asked == [Shard("train", *shard, seed=7)]


# Each: tasks, batch size in the spec, and [replicas, global batch, batch of a replica].
@pytest.mark.parametrize(
    ("tasks", "train", "numbers"),
    [
        ({"worker": 1}, {"batch_size": 50}, [1, 50, 50]),
        ({"worker": {"replicas": 3, "cpu_devices": 2}}, {"batch_size": 50}, [6, 300, 50]),
        ({"worker": {"replicas": 3, "gpus": 2}}, {"global_batch_size": 60}, [6, 60, 10]),
        ({"worker": 3, "ps": 1}, {"batch_size": 50}, [1, 50, 50]),
    ],
)
def test_a_task_knows_its_replicas_and_batches(
    tasks: dict[str, Any], train: dict[str, Any], numbers: list[int]
) -> None:
    job = setup(tasks, train=train)
    assert [job.replicas, job.global_batch, job.batch] == numbers


@pytest.mark.parametrize("ring", [None, object()], ids=["no ring", "a ring"])
@pytest.mark.parametrize("kind", ["arrays", "files", "a Dataset", "batches"])
def test_tensorflow_knows_that_batches_never_end_and_how_large_they_are(kind: str, ring: Any, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("1\n" * 100)
    examples = np.zeros((100, 3), np.int32), np.zeros(100)
    dataset = tf.data.Dataset.from_tensor_slices(examples)
    given: dict[str, Any] = {
        "arrays": examples,
        "files": trainer.files(str(tmp_path / "lines.txt"), lambda line: (tf.zeros(3, tf.int32), 0.0)),
        "a Dataset": dataset,
        "batches": trainer.batched(dataset.batch(16, drop_remainder=True)),
    }
    job = with_data(setup({"worker": 2}, train={"batch_size": 16}, model_dir=str(tmp_path)), lambda shard: given[kind])
    found = batches.synchronous(tf.distribute.get_strategy(), replace(job, ring=ring), job.training, 1)
    assert found.cardinality() == tf.data.INFINITE_CARDINALITY, "or tasks ask one another in each step"
    assert found.element_spec[0].shape == (16, 3), "or rows of an Embedding seem to vary"
    assert found.options().autotune.enabled is False, "or the task stands still when the iterator ends"


def test_a_dataset_whose_own_options_ask_for_autotuning_keeps_it() -> None:
    options = tf.data.Options()
    options.autotune.enabled = True
    dataset = tf.data.Dataset.range(32).map(lambda i: (tf.fill([3], i), i)).with_options(options)
    job = with_data(setup({"worker": 1}, train={"batch_size": 16}), lambda shard: dataset)
    found = batches.synchronous(tf.distribute.get_strategy(), job, job.training, 0)
    assert found.options().autotune.enabled is True
    assert job.evaluation().options().autotune.enabled is True
