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
