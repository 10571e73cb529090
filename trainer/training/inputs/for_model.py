"""Checks that data fit the inputs of a model."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.inputs.arrays import Arrays
from trainer.training.inputs.data_value import NAMES, TWO_SPLITS, of_load_data
from trainer.training.inputs.datasets import Batches, Examples
from trainer.training.inputs.source import Source
from trainer.training.inputs.weighted import unweighted
from trainer.training.private.tensorflow_private import was_batched
from trainer.workloads.types import Dataset, Tensor


def structure(source: Source) -> Tensor:
    """The parts of an example or a batch, as far as they are known without reading one; else None."""
    source = unweighted(source)
    if isinstance(source, Arrays):
        return source.parts
    return source.dataset.element_spec if isinstance(source, Examples | Batches) else None


def require_one_split(source: Source) -> None:
    """Checks, for a model of one input, that x is not a pair of x and y of one split, and y that of another.

    Raises:
        UserError: they are.
    """
    source = unweighted(source)
    if isinstance(source, Arrays) and of_load_data(source.parts):
        raise UserError(f"workload: data('train'): {TWO_SPLITS}")


def require_one_input(source: Source) -> None:
    """Checks, for a model of one Input, that x is not a tuple of several: Keras would take the first alone.

    Raises:
        UserError: it is.
    """
    x = keras.utils.unpack_x_y_sample_weight(structure(source))[0]
    if isinstance(x, tuple) and len(x) > 1:
        raise UserError(
            f"workload: data('train'): x has {len(x)} parts, and the model one Input; if each is an example, stack "
            "them: np.stack(x)"
        )


def require_shapes(source: Source, workload: str, *, of_x: bool, of_y: bool) -> None:
    """Checks that the ranks of a Dataset's parts are known.

    Raises:
        UserError: one is not, as of numpy_function.
    """
    source = unweighted(source)
    if not isinstance(source, Examples | Batches):
        return
    parts = keras.utils.unpack_x_y_sample_weight(source.dataset.element_spec)[:2]
    for name, part, wanted in zip(NAMES, parts, (of_x, of_y), strict=False):
        if wanted and any(each.shape.rank is None for each in tf.nest.flatten(part) if each is not None):
            raise UserError(
                f"workload: {workload}: {source.what}: the shape of {name} is not known, as of numpy_function and "
                f"py_function; call {name}.set_shape(...) in the function of map, or give from_generator an "
                "output_signature with shapes"
            )


def require_examples(source: Source, model_inputs: Sequence[Tensor], workload: str) -> None:
    """Checks that a Dataset yields single examples, as far as the ranks of the model's inputs show.

    Raises:
        UserError: it yields batches.
    """
    source = unweighted(source)
    if not isinstance(source, Examples):
        return
    examples = tf.nest.flatten(keras.utils.unpack_x_y_sample_weight(source.dataset.element_spec)[0])
    if not model_inputs and _yields_batches(source.dataset):
        raise UserError(
            f"workload: {workload}: data() gives a Dataset of batches; leave .batch(...) out, or return "
            "trainer.batched(dataset); if each batch is one example, write batch(..., drop_remainder=True)"
        )
    if len(examples) != len(model_inputs):
        return
    for part, wanted in zip(examples, model_inputs, strict=True):
        shape = part.shape
        # Keras removes a last dimension of 1, so with one dimension more it may be an example.
        if shape.rank == len(wanted.shape) and not (shape[-1] == 1 and wanted.shape[-1] != 1):
            raise UserError(
                f"workload: {workload}: data() gives a Dataset of batches, with x {shape} for the model's input "
                f"{tuple(wanted.shape)}; leave .batch(...) out, or return trainer.batched(dataset)"
            )


def _yields_batches(dataset: Dataset) -> bool:
    """Whether a Dataset was batched, and nothing says how many examples an element has: those of one batch have one
    shape, so that it is no example itself."""
    parts = tf.nest.flatten(dataset.element_spec)
    return all(each.shape.rank and each.shape[0] is None for each in parts) and was_batched(dataset)
