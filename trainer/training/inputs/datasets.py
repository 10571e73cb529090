"""tf.data.Datasets of the user's, which their owner shards and shuffles."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import keras
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.inputs.source import EVALUATION_BATCH, Part, finite
from trainer.workloads.estimator import Context
from trainer.workloads.estimator import InputFn as Function
from trainer.workloads.types import Dataset, Tensor


@dataclass(frozen=True)
class Examples:
    """Single examples of one shard."""

    dataset: Dataset
    what: str
    """The call that gave the dataset, for messages: data('train')."""
    of_one_shard: ClassVar[bool] = True

    def count(self) -> int | None:
        return _known(self.dataset)

    def batches(self, part: Part) -> Dataset:
        endless = self.dataset.repeat().batch(part.batch, drop_remainder=True)
        return endless.skip(part.start * part.local).prefetch(2)

    def evaluation(self, batch: int = EVALUATION_BATCH) -> Dataset:
        return finite(self.dataset, self.what).batch(batch)


@dataclass(frozen=True)
class Batches:
    """Batches of one replica, of one shard: what trainer.batched(dataset) gives."""

    dataset: Dataset
    what: str
    of_one_shard: ClassVar[bool] = True

    def count(self) -> int | None:
        batches, sizes = _known(self.dataset), _sizes(self.dataset.element_spec)
        return batches * sizes if batches is not None and sizes else None

    def batches(self, part: Part) -> Dataset:
        return _whole(self.dataset, part, self.what, f"batch({part.batch})")

    def evaluation(self, batch: int = EVALUATION_BATCH) -> Dataset:
        return finite(self.dataset, self.what)


@dataclass(frozen=True)
class InputFn:
    """The input_fn of a TrainSpec, which gives batches of one replica. An EvalSpec has an input_fn of its own."""

    function: Function
    replicas: int
    of_one_shard: ClassVar[bool] = False

    def count(self) -> int | None:
        return None

    def batches(self, part: Part) -> Dataset:
        context = Context(part.shards, part.index, self.replicas, part.batch)
        of_function = _called(self.function, context) if isinstance(part.index, int) else pairs(self.function(context))
        return _whole(of_function, part, "input_fn()", "batch(context.batch_size)")


@functools.cache
def _called(function: Function, context: Context) -> Dataset:
    """A task calls an input_fn once, as Estimators do: it may open files, or write some."""
    return pairs(function(context))


def _whole(dataset: Dataset, part: Part, what: str, fix: str) -> Dataset:
    """A replica's batches, again and again; smaller ones at the end are left out.

    Raises:
        UserError: it is empty, or its batch size differs from the spec's.
    """
    if tf.executing_eagerly():  # and not in the graph that ps-workers are sent
        first = next((_described(batch) for batch in dataset.take(1)), "nothing")
        if first != f"batches of {part.batch}":
            raise UserError(f"workload: {what}: gives {first}, the spec asks for {part.batch}: {fix}")
    of_full_size = dataset.filter(lambda *batch: tf.equal(_length(batch), part.batch))
    return of_full_size.repeat().skip(part.start * part.local).prefetch(2)


def _length(batch: Tensor) -> Tensor:
    first = tf.nest.flatten(batch)[0]
    return tf.cast(first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0], tf.int32)


def _described(batch: Tensor) -> str:
    shape = tf.nest.flatten(keras.utils.unpack_x_y_sample_weight(batch)[0])[0].shape
    return f"batches of {shape[0]}" if shape.rank else "single examples"


def _sizes(spec: Tensor) -> int | None:
    shape = tf.nest.flatten(spec)[0].shape
    return shape[0] if shape.rank else None


def _known(dataset: Dataset) -> int | None:
    """The number of elements, None if it is not known.

    Raises:
        UserError: there is no end.
    """
    number = int(dataset.cardinality())
    if number == tf.data.INFINITE_CARDINALITY:
        raise UserError(
            "train.epochs, callbacks(): data() gives a Dataset that never ends; leave repeat() out, or give "
            "train.steps_per_epoch"
        )
    return number if number >= 0 else None


def pairs(value: Dataset) -> Dataset:
    """Checks the return value of an input_fn.

    Raises:
        UserError: it is not a Dataset of (features, labels).
    """
    what = "workload: input_fn()"
    if not isinstance(value, tf.data.Dataset):
        raise UserError(f"{what}: must give a tf.data.Dataset, gave {type(value).__name__}")
    if not isinstance(value.element_spec, tuple) or len(value.element_spec) != 2:
        raise UserError(f"{what}: the Dataset must yield (features, labels), it yields {value.element_spec}")
    return value
