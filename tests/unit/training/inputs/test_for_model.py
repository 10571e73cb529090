from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training import inputs
from trainer.training.inputs import Source
from trainer.workloads.batched import batched

PAIRS = tf.data.Dataset.from_tensor_slices((np.arange(5), -np.arange(5)))


def dataset_of(*shapes: tuple[int, ...]) -> Source:
    arrays = tuple(np.zeros((4, *shape)) for shape in shapes)
    return inputs.source(tf.data.Dataset.from_tensor_slices((arrays, np.zeros(4))), "data()")


# Each: shapes of what a Dataset yields, those of the model's inputs, and whether they are batches.
YIELDED: list[tuple[list[tuple[int, ...]], list[tuple[int | None, ...]], bool]] = [
    ([(8, 8)], [(None, 8, 8)], False),
    ([(32, 8, 8)], [(None, 8, 8)], True),
    ([(32, 5)], [(None, 5)], True),
    ([(5, 1)], [(None, 5)], False),
    ([(32, 1)], [(None, 1)], True),
    ([()], [(None, 1)], False),
    ([(3,), (4,)], [(None, 3), (None, 4)], False),
    ([(9, 3), (9, 4)], [(None, 3), (None, 4)], True),
    ([(9, 3), (9, 4)], [(None, 3)], False),
    ([(9, 3)], [], False),
]


@pytest.mark.parametrize(("shapes", "model", "batches"), YIELDED)
def test_a_dataset_of_batches_is_refused(
    shapes: list[tuple[int, ...]], model: list[tuple[int | None, ...]], batches: bool
) -> None:
    given, model_inputs = dataset_of(*shapes), [tf.TensorSpec(shape) for shape in model]
    if not batches:
        inputs.require_examples(given, model_inputs, "mine.py")
        return
    with pytest.raises(UserError, match=r"^workload: mine\.py: data\(\) gives a Dataset of batches, with x \("):
        inputs.require_examples(given, model_inputs, "mine.py")


def test_a_dataset_of_batches_whose_size_is_not_known_is_refused() -> None:
    given = inputs.source(PAIRS.map(lambda x, y: (tf.zeros([8]), y)).batch(3), "data()")
    with pytest.raises(UserError, match=r"with x \(None, 8\) for the model's input \(None, 8\); leave \.batch"):
        inputs.require_examples(given, [tf.TensorSpec((None, 8))], "mine.py")


def test_two_splits_in_one_are_refused() -> None:
    splits = inputs.source(((np.zeros((5, 2)), np.zeros(5)), (np.ones((5, 2)), np.ones(5))), "data('train')")
    with pytest.raises(
        UserError, match=r"^workload: data\('train'\): gave two pairs, as keras\.datasets' load_data\(\)"
    ):
        inputs.require_one_split(splits)
    for other in [((np.zeros((5, 2)), np.zeros(5)), np.ones(5)), (np.zeros((5, 2)), np.zeros(5))]:
        inputs.require_one_split(inputs.source(other, "data('train')"))


def test_several_parts_are_refused_for_a_model_of_one_input() -> None:
    with pytest.raises(UserError, match=r"x has 8 parts, and the model one Input; if each is an example, stack them"):
        inputs.require_one_input(inputs.source(([np.zeros((8, 8))] * 8, np.zeros(8)), "data('train')"))
    for one in (np.zeros((8, 8)), {"a": np.zeros((8, 8)), "b": np.zeros(8)}):
        inputs.require_one_input(inputs.source((one, np.zeros(8)), "data('train')"))


# Each: a Dataset for a model without Input, and whether it is one of batches.
UNDECLARED: list[tuple[Any, bool]] = [
    (PAIRS, False),
    (PAIRS.batch(2), True),
    (PAIRS.batch(2).map(lambda x, y: (x * 2, y)).prefetch(1), True),
    (PAIRS.map(lambda x, y: (tf.range(x), y[None])).padded_batch(2), True),
    (tf.data.Dataset.zip(PAIRS.batch(2), PAIRS.batch(2)).map(lambda x, y: (x[0], y[0])), True),
    (PAIRS.batch(2).unbatch(), False),
    (PAIRS.batch(2, drop_remainder=True), False),
    (PAIRS.map(lambda x, y: (tf.range(x), y)), False),
]


@pytest.mark.parametrize(("dataset", "batches"), UNDECLARED, ids=range(len(UNDECLARED)))
def test_a_dataset_of_batches_is_refused_for_a_model_without_input(dataset: Any, batches: bool) -> None:
    try:
        inputs.require_examples(inputs.source(dataset, "data()"), [], "mine.py")
        refused = ""
    except UserError as error:
        refused = str(error)
    assert refused.startswith("workload: mine.py: data() gives a Dataset of batches; leave .batch(...)") is batches


def test_parts_of_unknown_shape_are_refused() -> None:
    def double(x: Any, y: Any) -> Any:
        return tf.numpy_function(lambda n: n * 2.0, [x], tf.float64), y

    examples = tf.data.Dataset.from_tensor_slices((np.zeros((4, 2)), np.zeros(4))).map(double)
    for dataset in (examples, batched(examples.batch(2))):
        given = inputs.source(dataset, "data('train')")
        inputs.require_shapes(given, "mine.py", of_x=False, of_y=True)
        with pytest.raises(
            UserError, match=r"^workload: mine\.py: data\('train'\): the shape of x is not known, .*set_sha"
        ):
            inputs.require_shapes(given, "mine.py", of_x=True, of_y=True)
