"""Examples that are weighted by their class, as by Keras' fit(class_weight=)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import keras
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.inputs.source import Part, Source
from trainer.workloads.types import Dataset, Tensor

_WHAT = "workload: model.fit(class_weight=...)"


@dataclass(frozen=True)
class Weighted:
    """Another source's examples with the weights of their classes; a class without one weighs 1.

    As in Keras labels are class numbers, or of rank 2 or more: then the largest of the last dimension tells the class,
    or its one value. With more than two each position of an example has a weight, as those of a Dataset have in Keras
    (`class_weight_to_sample_weights`, keras/src/trainers/data_adapters/data_adapter_utils.py;
    `make_class_weight_map_fn`, tf_dataset_adapter.py).
    """

    source: Source
    weights: Mapping[int, float]

    @property
    def of_one_shard(self) -> bool:
        return self.source.of_one_shard

    def count(self) -> int | None:
        return self.source.count()

    def batches(self, part: Part) -> Dataset:
        plain = self.source.batches(part)
        _, y, sample_weights = keras.utils.unpack_x_y_sample_weight(plain.element_spec)
        if sample_weights is not None:
            raise UserError(f"{_WHAT}: data(shard) gives sample weights; multiply them there, and leave it out")
        if not isinstance(y, tf.TensorSpec):
            raise UserError(f"{_WHAT}: is for a model with one output, whose labels are one array")
        if y.shape.rank is None:
            raise UserError(f"{_WHAT}: the shape of the labels is not known; call y.set_shape(...) in data(shard)")
        if y.dtype == tf.string:
            raise UserError(f"{_WHAT}: labels are text; give class numbers in data(shard)")
        classes = tf.constant(list(self.weights), tf.int32)
        weights = tf.constant(list(self.weights.values()), tf.float32)

        @tf.autograph.experimental.do_not_convert
        def weigh(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            is_class = tf.equal(_class_numbers(y)[..., tf.newaxis], classes)
            weight = tf.reduce_sum(tf.where(is_class, weights, 0.0), axis=-1)
            return x, y, tf.where(tf.reduce_any(is_class, axis=-1), weight, 1.0)

        return plain.map(weigh).prefetch(2)


def unweighted(source: Source) -> Source:
    """The source of the examples, without the weights of their classes."""
    return source.source if isinstance(source, Weighted) else source


def _class_numbers(y: Tensor) -> Tensor:
    y = tf.cast(y, tf.int32) if y.dtype == tf.bool else y
    if y.shape.rank == 1:
        return tf.cast(tf.round(y), tf.int32)
    numbers = tf.cast(tf.round(y[..., 0]), tf.int32)
    return tf.where(tf.shape(y)[-1] == 1, numbers, tf.argmax(y, -1, tf.int32))
