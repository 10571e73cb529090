"""The training data of this task for each kind of strategy, as input of a loop or of fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import keras
import tensorflow as tf

from trainer.training import inputs
from trainer.training.private import tensorflow_private
from trainer.training.task import TrainingTask
from trainer.workloads.types import Dataset, Strategy, Tensor


def synchronous(strategy: Strategy, job: TrainingTask, source: inputs.Source, start: int) -> Dataset:
    """This task's endless batches from step `start` on, distributed to its replicas.

    Where a task is a single CPU, as in a ring, there is nothing to distribute: the functions that would copy batches to
    its device took up to 0.2 s of each start, and a thread in each step.

    repeat() because TensorFlow does not know that a flat_map never ends: in each step tasks would ask one another
    whether they have a batch, whose size would not be known (`_enable_get_next_as_optional`,
    tensorflow/python/distribute/input_lib.py).
    """

    def endless() -> Dataset:
        return inputs.untuned(source.batches(replace(job.part, start=start)).repeat())

    if job.ring:
        return endless().prefetch(1)
    return strategy.distribute_datasets_from_function(lambda _: endless())


def per_worker(
    strategy: Strategy, job: TrainingTask, source: inputs.Source, reached: Callable[[], Tensor]
) -> Callable[[], Dataset]:
    """A function that returns a worker's endless batches; the coordinator runs it on that worker, and again on one that
    takes its place.

    Args:
        reached: gives the batches that all workers have trained on, in a graph. A worker begins with its part of them
            left out: of those that others took in its place while it was away some are read twice, and as many never.
    """
    workers = job.part.shards
    source.batches(job.part)  # eagerly: most mistakes cannot be found in a graph that is sent to a worker

    @tf.autograph.experimental.do_not_convert
    def dataset() -> Dataset:
        index = tf.cast(tf.distribute.coordinator.experimental_get_current_worker_index(), tf.int32)
        mine = source
        if source.of_one_shard:
            with tensorflow_private.converting_as_in_eager_code(), tensorflow_private.tables_on_each_worker(strategy):
                mine = job.training_of(tf.cast(index, tf.int64))
        return inputs.untuned(mine.batches(replace(job.part, index=index, start=reached() // workers)))

    make_dataset: Callable[[], Dataset] = dataset
    return make_dataset


def replica_spec(job: TrainingTask, source: inputs.Source) -> Tensor:
    """tf.TensorSpec of each part of a replica's batch."""
    return source.batches(job.part).element_spec


def x_spec(job: TrainingTask) -> Tensor:
    """tf.TensorSpec of each part of x in a replica's batch."""
    return keras.utils.unpack_x_y_sample_weight(replica_spec(job, job.training))[0]
