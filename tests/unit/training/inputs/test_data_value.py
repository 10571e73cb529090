import array
from collections import UserDict
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training import inputs
from trainer.training.inputs import Source
from trainer.workloads.batched import batched

PAIRS = tf.data.Dataset.from_tensor_slices((np.arange(5), -np.arange(5)))


class Batches(keras.utils.PyDataset):  # type: ignore[misc]
    """As long as a sequence of arrays: TensorFlow would make one array of it."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if index >= 4:
            raise IndexError
        return np.zeros((2, 3))


class Examples:
    """A dataset of PyTorch, or of the Hugging Face library."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if index >= 4:
            raise IndexError
        return np.zeros(3), index


class Columns:
    """Like a dataset of Hugging Face's."""

    column_names = ("text", "label")

    def __len__(self) -> int:
        return 4

    def __getitem__(self, key: Any) -> Any:
        return {"text": "a", "label": 1}


class Loader:
    """A DataLoader of PyTorch: batches in an order of its own."""

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[Any]:
        return iter([np.zeros((2, 3))] * 4)


JOIN = "x = np.concatenate([batches[i][0] for i in range(len(batches))]), and y likewise, or give a tf.data.Dataset of"
STACK = "which is no array; stack its examples: x = np.stack([examples[i][0] for i in range(len(examples))]), and y"
UNORDERED = "which has no order; return arrays, or tf.data.Dataset.from_generator(function, ...)"

# Each: what data() gives, and the rule that it breaks.
BAD: list[tuple[Any, str]] = [
    (
        None,
        "gave None; return x, (x, y) or (x, y, sample_weight), each an array, or a tuple or dict of arrays, or a tf",
    ),
    ([np.zeros(3), np.zeros(3)], "gave a list; write a tuple: x, (x, y) or (x, y, sample_weight)"),
    ([(1, 2), (3, 4)], "gave a list; write a tuple: x, (x, y) or (x, y, sample_weight)"),
    ((), "gave a tuple of 0; it must be x, (x, y) or"),
    ((np.zeros(3),) * 4, "gave a tuple of 4; it must be x, (x, y) or (x, y, sample_weight), each an array, or a tuple"),
    ((np.zeros(3), None), "y is None; leave it out: give x alone, or (x, y)"),
    ((np.zeros(3), np.zeros(2)), "x has 3 examples and y 2; they must be equal, not 0"),
    ((np.zeros(0), np.zeros(0)), "x has 0 examples and y 0; they must be equal, not 0"),
    ((np.zeros(3), np.zeros(3), np.zeros(2)), "its arrays have [3, 3, 2] examples; they must be equal, not 0"),
    (np.zeros(0), "its arrays have [0] examples; they must be equal, not 0"),
    ((1, 2), "must give arrays, gave single values"),
    ((np.zeros(3), np.float32(1)), "must give arrays, gave single values"),
    (([[1, 2], [3]], [0, 1]), "x has sequences of different lengths, of which there is no array; give tf.ragged.const"),
    (
        ({"a": [[1, 2], [3]]}, [0, 1]),
        "x['a'] has sequences of different lengths, of which there is no array; give tf.r",
    ),
    (({"a": [1, 2], "b": [1]}, [0, 1]), "its arrays have [2, 1, 2] examples; they must be equal, not 0"),
    (({"a": [], "b": []}, []), "its arrays have [0, 0, 0] examples; they must be equal, not 0"),
    (({}, [0]), "must give arrays: "),
    (
        (tf.sparse.eye(3), np.zeros(3)),
        "must give arrays: an array is sparse; make it dense: tf.sparse.to_dense(",
    ),
    (Batches(), f"gave a value of type Batches, a PyDataset; join its batches: {JOIN}"),
    ((Batches(), np.zeros(4)), f"gave a value of type Batches, a PyDataset; join its batches: {JOIN}"),
    (Examples(), f"gave a value of type Examples, {STACK}"),
    (({"a": np.zeros(4), "b": Examples()}, np.zeros(4)), f"gave a value of type Examples, {STACK}"),
    (Loader(), f"gave a value of type Loader, {UNORDERED}"),
    ((i for i in range(4)), f"gave a value of type generator, {UNORDERED}"),
    ({1, 2}, f"gave a value of type set, {UNORDERED}"),
    (object(), "gave a value of type object, which is no array; return x, (x, y) or"),
    (([1, None], [0, 1]), "gave a value of type NoneType, which is no array; return x, (x, y) or"),
    ([(np.zeros(3), 0), (np.ones(3), 1)], "gave a list of examples; stack them: x = np.stack([each[0] for each in ex"),
    (
        Columns(),
        "gave a value of type Columns, which is no array; give its columns as arrays: np.asarray(dataset['text'])",
    ),
    ([{"x": np.zeros(3)}] * 3, "gave a list of examples; stack them: x = np.stack([each['x'] for each in examples])"),
    (([{"x": np.zeros(3)}] * 3, [0, 1, 0]), "gave a list of examples; stack them: x = np.stack([each['x'] for each in"),
    ((np.zeros((5, 8)), [np.zeros(2)] * 5), "y is a list of 5 arrays, one for each example; stack them: np.stack(y)"),
    (({"a": [np.zeros(8)] * 5}, np.zeros(5)), "x['a'] is a list of 5 arrays, one for each example; stack them: np.sta"),
    (
        (UserDict(a=np.zeros(3)), np.zeros(3)),
        "gave a value of type UserDict, with 'a'; give a dict of arrays, as dict(",
    ),
    (np.ma.masked_less(np.arange(3), 1), "gave a masked array, of which the values below the mask would be taken; fil"),
    ((PAIRS, np.zeros(5)), "gave a value of type _TensorSliceDataset in a tuple; return it alone: it yields x, (x, y)"),
    (([np.zeros((8, 8))] * 5, [0, 1, 0, 1, 0]), "x is a list of 5 arrays, one for each example; stack them: np.stack("),
    (([np.zeros((8, 8))] * 5, np.zeros(5)), "x is a list of 5 arrays, one for each example; stack them: np.stack(x)"),
    (
        (np.array([["abc", 1.0]], dtype=object), [0]),
        "x is an array of objects, str at [0, 0], float at [0, 1]; an array has one type, and no missing values: give",
    ),
    (
        ([[1.0]], np.array(["2020-01-01"], "datetime64[D]")),
        "y is an array of datetime64[D], of which TensorFlow makes no",
    ),
    (
        ((np.zeros((5, 2)), np.zeros(5)), (np.zeros((3, 2)), np.zeros(3))),
        "gave two pairs, as keras.datasets' load_data() does: return one of them, train if shard.split == 'train' else",
    ),
    (batched((np.zeros(3), np.zeros(3))), "trainer.batched() takes a tf.data.Dataset, got tuple"),
    (batched(PAIRS.map(lambda x, y: (x, x, x, y)).batch(2)), "the Dataset yields tuples of 4; it must yield x, (x, y)"),
    (batched(PAIRS), "trainer.batched() got a Dataset of single examples; call .batch(...) before, or leave it out"),
    (
        PAIRS.map(lambda x, y: (x, x, x, y)),
        "the Dataset yields tuples of 4; it must yield x, (x, y) or (x, y, sample_weight): several inputs go into a",
    ),
]


@pytest.mark.parametrize(("value", "rule"), BAD, ids=range(len(BAD)))
def test_what_is_no_data_is_named(value: Any, rule: str) -> None:
    with pytest.raises(UserError) as caught:
        inputs.source(value, "data('test')")
    assert str(caught.value).startswith(f"workload: data('test'): {rule}")


def test_lists_are_arrays_too() -> None:
    ((x, y),) = inputs.source(([[1.0], [2.0]], [0, 1]), "data()").evaluation().as_numpy_iterator()
    assert (x.tolist(), y.tolist()) == ([[1.0], [2.0]], [0, 1])
    labels = [np.int64(1), np.int64(0)]
    ((x, y),) = inputs.source((array.array("d", [1, 2]), labels), "data()").evaluation().as_numpy_iterator()
    assert (x.tolist(), y.tolist()) == ([1.0, 2.0], [1, 0])


def test_a_list_of_arrays_is_a_list_of_inputs() -> None:
    two = [np.zeros((2, 3)), np.ones((2, 5))]
    (((a, b), y),) = inputs.source((two, [0, 1]), "data()").evaluation().as_numpy_iterator()
    assert (a.shape, b.shape, y.tolist()) == ((2, 3), (2, 5), [0, 1])


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


@pytest.mark.parametrize(("y", "weights", "fine"), [
    ((6,), (6,), True), ((6,), (6, 1), True), ((6, 1), (6,), True), ((6, 4), (6, 4), True), ((6, 4), (6, 1), True),
    ((6, 4, 3), (6, 4), True), ((6,), (6, 2), False), ((6, 4), (6, 3), False), ((6, 1), (6, 6), False),
    ((6, 4), (6, 4, 4), False),
])  # fmt: skip
def test_sample_weights_fit_the_labels(y: tuple[int, ...], weights: tuple[int, ...], fine: bool) -> None:
    arrays = np.zeros((6, 2)), np.zeros(y), np.ones(weights)
    by_name = np.zeros((6, 2)), {"a": np.zeros(6), "b": np.zeros(y)}, {"a": np.ones(6), "b": np.ones(weights)}
    examples = tf.data.Dataset.from_tensor_slices(arrays)
    for value in [arrays, by_name, examples, batched(examples.batch(2)), batched(examples.batch(2, True))]:
        if fine:
            inputs.source(value, "data()")
            continue
        with pytest.raises(UserError, match=r"^workload: data\(\): sample weights of shape \[.*; give one weight"):
            inputs.source(value, "data()")


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


NONE = {
    "known": PAIRS.take(0),
    "unknown": PAIRS.filter(lambda x, y: x > 9),
    "batches": batched(PAIRS.filter(lambda x, y: x > 9).batch(2)),
}


@pytest.mark.parametrize("kind", NONE)
def test_a_split_without_examples_is_refused(kind: str) -> None:
    with pytest.raises(UserError, match=r"^workload: validation\(\): gives no examples; give at least one$"):
        inputs.require_some(inputs.source(NONE[kind], "validation()"), "validation()")
    inputs.require_some(inputs.source(PAIRS.filter(lambda x, y: x > 3), "validation()"), "validation()")
