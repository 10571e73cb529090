"""tf.data.Datasets of the user's, which their owner shards and shuffles."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import keras
import numpy as np
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.inputs.source import EVALUATION_BATCH, Part, finite
from trainer.workloads.estimator import Context
from trainer.workloads.estimator import InputFn as Function
from trainer.workloads.types import Dataset, Tensor

Tell = Callable[[str], None]


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
    tell: Tell = lambda _: None
    """Takes a line for the log."""
    of_one_shard: ClassVar[bool] = True

    def count(self) -> int | None:
        batches, sizes = _known(self.dataset), _sizes(self.dataset.element_spec)
        return batches * sizes if batches is not None and sizes else None

    def batches(self, part: Part) -> Dataset:
        return _whole(self.dataset, part, self.what, f"batch({part.batch})", self.tell)

    def evaluation(self, batch: int = EVALUATION_BATCH) -> Dataset:
        return finite(self.dataset, self.what)


@dataclass(frozen=True)
class InputFn:
    """The input_fn of a TrainSpec, which gives batches of one replica. An EvalSpec has an input_fn of its own."""

    function: Function
    replicas: int
    tell: Tell = lambda _: None
    """Takes a line for the log."""
    of_one_shard: ClassVar[bool] = False

    def count(self) -> int | None:
        return None

    def batches(self, part: Part) -> Dataset:
        context = Context(part.shards, part.index, self.replicas, part.batch)
        of_function = _called(self.function, context) if isinstance(part.index, int) else pairs(self.function(context))
        return _whole(of_function, part, "input_fn()", "batch(context.batch_size)", self.tell)


@functools.cache
def _called(function: Function, context: Context) -> Dataset:
    """A task calls an input_fn once, as Estimators do: it may open files, or write some."""
    return pairs(function(context))


def _whole(dataset: Dataset, part: Part, what: str, fix: str, tell: Tell = lambda _: None) -> Dataset:
    """A replica's batches, again and again; smaller ones are left out, which is told if it is more than the last one.

    A batch that is larger fails with a text that user_code.graph_error reports: it cannot be the rest of the data.

    Raises:
        UserError: it is empty, or its batch size differs from the spec's.
    """
    asked = f"the spec asks for {part.batch}: {fix}"
    note: Callable[[Tensor, Tensor], Tensor] | None = None
    if tf.executing_eagerly():  # and not in the graph that ps-workers are sent
        batches = iter(dataset.take(2))  # one pass: another may have another order
        begin = next(batches, None)
        if begin is None:
            raise UserError(f"workload: {what}: gives this task no batches; {asked}")
        first = _described(begin)
        if first != f"batches of {part.batch}" and not _is_rest(begin, next(batches, None), part.batch):
            raise UserError(f"workload: {what}: gives {first}, {asked}")
        note = LeftOut(what, part.batch, tell).note

    @tf.autograph.experimental.do_not_convert
    def is_whole(index: Tensor, batch: Tensor) -> Tensor:
        length = _length(batch)
        parts = [f"workload: {what}: gives a batch of", length, f"examples, {asked}"]
        with tf.control_dependencies([tf.debugging.Assert(length <= part.batch, parts)]):
            whole = tf.equal(length, part.batch)
        if note is None:
            return whole
        return tf.cond(whole & (index > 0), lambda: True, lambda: tf.numpy_function(note, [index, length], tf.bool))

    of_full_size = dataset.enumerate().filter(is_whole).map(lambda _, batch: batch)
    return of_full_size.repeat().skip(part.start * part.local).prefetch(2)


def _is_rest(batch: Tensor, following: Tensor | None, size: int) -> bool:
    """Whether a batch is smaller and the one after it is whole, as where batches are shuffled."""
    if following is None or _counting(batch).shape.rank == 0:
        return False
    return int(_length(batch)) < size == int(_length(following))


@dataclass
class LeftOut:
    """Counts the batches that are left out, and tells it once."""

    what: str
    size: int
    tell: Tell
    batches: int = 0
    examples: int = 0
    told: bool = False

    def note(self, index: int, length: int) -> np.bool_:
        """Counts a smaller batch; returns whether it is whole, for it is called for the first one of each pass too."""
        if index == 0:
            if self.batches > 1 and not self.told:
                self.told = True
                self.tell(self._text("in a pass over the data"))
            self.batches = self.examples = 0
        if length == self.size:
            return np.bool_(True)
        self.batches, self.examples = self.batches + 1, self.examples + int(length)
        if self.batches == 2 and not self.told:
            self.tell(self._text("so far"))
        return np.bool_(False)

    def _text(self, when: str) -> str:
        return (
            f"warning: {self.what}: batches of fewer than {self.size} examples are left out: {self.batches} with "
            f"{self.examples} examples {when}; give all batches {self.size} examples, but for the last"
        )


def small_batches(dataset: Dataset, size: int, most: int = 32) -> int:
    """The number of batches of fewer examples among the first, without one that may be the rest of the data."""
    lengths = [int(_length(batch)) for batch in dataset.take(most)]
    small = sum(length < size for length in lengths)
    return small if small > 1 and len(lengths) == most else max(0, small - 1)


def _counting(batch: Tensor) -> Tensor:
    """The part whose first dimension is the examples: labels if there are some, since parts of x may be merged, as of
    graphs."""
    x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
    return tf.nest.flatten(x if y is None else y)[0]


def _length(batch: Tensor) -> Tensor:
    first = _counting(batch)
    return tf.cast(first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0], tf.int32)


def _described(batch: Tensor) -> str:
    first = _counting(batch)
    return f"batches of {first.shape[0]}" if first.shape.rank else "single examples"


def _sizes(spec: Tensor) -> int | None:
    shape = _counting(spec).shape
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
