"""What the sources of batches have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import tensorflow as tf

from trainer.job.errors import UserError
from trainer.workloads.types import Dataset, Tensor

EVALUATION_BATCH = 500


@dataclass(frozen=True)
class Part:
    """The batches of a split that one task reads."""

    batch: int
    """Examples per replica."""
    shards: int = 1
    """Number of tasks that read; all of them together make one step."""
    index: int | Tensor = 0
    """This task's; a tensor under parameter_server."""
    local: int = 1
    """Replicas in this task; they take turns."""
    seed: int = 0
    start: int | Tensor = 0
    """The first step; a tensor under parameter_server."""

    @property
    def per_step(self) -> int:
        """Examples of one step."""
        return self.batch * self.shards * self.local


class Source(Protocol):
    """Examples to train on, as batches that keras.utils.unpack_x_y_sample_weight takes."""

    @property
    def of_one_shard(self) -> bool:
        """Whether it has the examples of one shard only, because its owner divides them."""

    def count(self) -> int | None:
        """Number of its examples, or None if that is not known."""

    def batches(self, part: Part) -> Dataset:
        """Endless batches of a task.

        Raises:
            UserError: fewer examples than one step needs.
        """


class Split(Source, Protocol):
    """A split of the data, to train on or to evaluate on."""

    def evaluation(self, batch: int = EVALUATION_BATCH) -> Dataset:
        """Finite batches over all of it, in order.

        Raises:
            UserError: it never ends.
        """


def untuned(dataset: Dataset) -> Dataset:
    """The Dataset without tf.data's autotuning, unless its own options ask for it; then AUTOTUNE is the number of CPUs.

    The end of an iterator may wait up to a minute for the thread that tunes it, in Python with the GIL held: that
    thread is woken before it can see that it is cancelled, and sleeps again (`Model::OptimizeLoop`,
    tensorflow/core/framework/model.cc; `StartCancelWithStatus`, tensorflow/tsl/framework/cancellation.cc). So a task
    gives no sign of life, or a ps-worker no answer to the chief (decision 83).
    """
    if dataset.options().autotune.enabled is not None:
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def finite(dataset: Dataset, what: str) -> Dataset:
    """Returns the Dataset unless it is known to be endless. A generator's length is not known: a deadline limits it.

    Raises:
        UserError: it never ends.
    """
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise UserError(f"workload: {what}: the Dataset never ends; leave repeat() out, or add take(n)")
    return dataset


def require_some(split: Split, what: str) -> None:
    """Checks that there are examples; of a Dataset whose size is not known the first one is read.

    Raises:
        UserError: there are none, and so no figures.
    """
    batches = split.evaluation(1)
    count = int(batches.cardinality())
    if count == 0 or (count == tf.data.UNKNOWN_CARDINALITY and next(iter(batches.take(1)), None) is None):
        raise UserError(f"workload: {what}: gives no examples; give at least one")
