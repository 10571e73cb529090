"""Reduces a workload's loss and metrics to one value per example, or refuses them."""

from __future__ import annotations

import tensorflow as tf

from trainer.job.errors import UserError
from trainer.workloads.types import PerExample, Tensor


def values(name: str, function: PerExample, y: Tensor, prediction: Tensor) -> Tensor:
    """Averages function(y, prediction) over all axes but the first; returns float32 of shape [batch].

    Further axes count as values within an example only if y or the prediction has that shape. [batch, batch] is nearly
    always a broadcast of [batch] against [batch, 1], and would train another model.

    Args:
        name: of the function, for messages.

    Raises:
        UserError: the function does not return numbers, or returns another shape.
    """
    result = function(y, prediction)
    try:
        result = tf.cast(result, tf.float32)
    except (TypeError, ValueError, tf.errors.OpError):
        raise UserError(f"{_rule(name)}; it gave {type(result).__name__}; {_FIX}") from None
    labels, outputs = tf.nest.flatten(y), tf.nest.flatten(prediction)
    batch = labels[0].shape[0]
    if result.shape.rank is None:  # for example from a py_function: TensorFlow checks it at run time
        return tf.ensure_shape(result, [batch])
    shape = result.shape.as_list()
    if shape[:1] == [batch] and (len(shape) == 1 or shape in _within_example(labels, outputs)):
        return tf.reduce_mean(result, axis=list(range(1, len(shape)))) if len(shape) > 1 else result
    if len(shape) == 1 and None in (shape[0], batch):
        return tf.ensure_shape(result, [batch])
    expected = f"[{batch or 'batch'}]"
    shapes = f"y is {_listed(labels)}, the prediction {_listed(outputs)}"
    raise UserError(f"{_rule(name)}, shape {expected}; it gave {_listed([result])}, where {shapes}; {_FIX}")


def weighted(values: Tensor, weights: Tensor | None) -> Tensor:
    """Multiplies values of shape [batch] by sample weights, of shape [batch] or [batch, 1].

    Raises:
        UserError: weights of another shape.
    """
    if weights is None:
        return values
    shape = getattr(weights, "shape", None)
    if shape is None or shape.rank not in (1, 2) or (shape.rank == 2 and shape[1] != 1):
        shown = type(weights).__name__ if shape is None else _listed([weights])
        raise UserError(
            f"workload: the sample weights of a batch are {shown}; give one weight per example, an array of shape [n]"
        )
    return values * tf.cast(tf.reshape(weights, [-1]), tf.float32)


def _within_example(labels: list[Tensor], outputs: list[Tensor]) -> list[list[int | None]]:
    """Allowed shapes of values within an example: that of y or the prediction, also without the last axis."""
    shapes = [each.shape.as_list() for each in (*labels, *outputs)]
    return [*shapes, *(each.shape.as_list()[:-1] for each in outputs)]


def _rule(name: str) -> str:
    return f"workload: {name} must give one value per example"


_FIX = (
    "give y and the prediction the same shape, such as prediction[:, 0], and leave the mean over the batch out "
    "(of Keras' Loss classes: reduction=None)"
)


def _listed(tensors: list[Tensor]) -> str:
    return " and ".join("a scalar" if each.shape.rank == 0 else str(each.shape.as_list()) for each in tensors)


def cross_entropy(y: Tensor, prediction: Tensor) -> Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y, tf.int32), tf.cast(prediction, tf.float32))


def accuracy(y: Tensor, prediction: Tensor) -> Tensor:
    return tf.cast(tf.equal(tf.argmax(prediction, -1), tf.cast(y, tf.int64)), tf.float32)
