"""The training data of this task under each kind of strategy, as a loop or fit takes them."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from trainer.training import inputs
from trainer.training.task import TrainingTask
from trainer.workloads.types import Dataset, Strategy
from trainer.workloads.workload import Shard


def training_split(job: TrainingTask) -> inputs.Source:
    """The training data as this task sees them: all of them, or a workload's own part for it. A coordinator, which
    reads none, sees those of its first worker."""
    position, readers = _place(job)
    return job.split(Shard("train", position, readers, job.spec.train.seed))


def synchronous(strategy: Strategy, job: TrainingTask, source: inputs.Source, start: int) -> Dataset:
    """This task's endless batches from step `start` on, handed out to its replicas."""
    position, readers = _place(job)
    local = job.replicas // readers
    return strategy.distribute_datasets_from_function(
        lambda _: job.batches(source, shards=readers, index=position, local=local, start=start)
    )


def per_worker(job: TrainingTask, source: inputs.Source, start: int) -> Callable[[], Dataset]:
    """A function that gives a worker's endless batches, to be called on that worker by its coordinator."""
    spec, workers = job.spec, job.task.counts["worker"]
    if job.workload.train_spec is not None:
        # A first look at its batches, which a graph that is sent to a worker does not have.
        job.batches(source, shards=workers, index=0, local=1, start=0)

    @tf.autograph.experimental.do_not_convert
    def dataset() -> Dataset:
        index = tf.cast(tf.distribute.coordinator.experimental_get_current_worker_index(), tf.int32)
        mine = source
        if source.dataset is not None:
            mine = job.split(Shard("train", tf.cast(index, tf.int64), workers, spec.train.seed))
        return job.batches(mine, shards=workers, index=index, local=1, start=start // workers)

    given: Callable[[], Dataset] = dataset
    return given


def _place(job: TrainingTask) -> tuple[int, int]:
    """Which of the tasks that read the data this is, and how many there are."""
    if job.spec.traits.coordinated:
        return 0, job.task.counts["worker"]
    members = job.task.members()
    return members.index((job.task.type, job.task.index)), len(members)
