import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training import inputs
from trainer.training.inputs import Source


def source(count: int) -> Source:
    """Examples 0, 1, ...; the label of each is its negative."""
    return inputs.source((np.arange(count), -np.arange(count)), "train")


def read(
    count: int,
    steps: int,
    *,
    batch: int = 2,
    shards: int = 1,
    index: Any = 0,
    local: int = 1,
    seed: int = 5,
    start: int = 0,
) -> np.ndarray[Any, Any]:
    """The examples of one shard, [steps, local * batch]."""
    dataset = inputs.batches(
        source(count), batch=batch, shards=shards, index=index, local=local, seed=seed, start=start
    )
    got = []
    for x, y in itertools.islice(dataset.as_numpy_iterator(), steps * local):
        assert (x == -y).all(), "input and label stay together"
        assert x.shape == (batch,)
        got.append(x)
    return np.array(got).reshape(steps, local * batch)


# 26 examples make 4 steps of 6 an epoch, and leave 2 out; 3 steps of 8.


@pytest.mark.parametrize(("shards", "local", "batch"), [(1, 1, 6), (3, 1, 2), (1, 3, 2), (3, 2, 1)])
def test_in_an_epoch_no_two_steps_and_no_two_shards_meet_the_same_example(shards: int, local: int, batch: int) -> None:
    epoch = [read(26, 4, batch=batch, shards=shards, index=i, local=local) for i in range(shards)]
    examples = np.concatenate(epoch, axis=None)
    assert len(set(examples.tolist())) == len(examples) == 24
    assert set(examples.tolist()) < set(range(26))


@pytest.mark.parametrize(("shards", "local"), [(2, 1), (4, 1), (1, 4), (2, 2)])
def test_many_shards_read_together_what_one_of_their_size_reads_step_by_step(shards: int, local: int) -> None:
    one = read(26, 7, batch=8)
    batch = 8 // (shards * local)
    parts = [read(26, 7, batch=batch, shards=shards, index=i, local=local) for i in range(shards)]
    assert (np.concatenate(parts, axis=1) == one).all()


@pytest.mark.parametrize("start", [1, 4, 11])
@pytest.mark.parametrize(("shards", "index", "local"), [(1, 0, 1), (3, 2, 1), (1, 0, 2)])
def test_starting_at_a_step_is_skipping_those_before(start: int, shards: int, index: int, local: int) -> None:
    which: dict[str, Any] = {"shards": shards, "index": index, "local": local}
    assert (read(26, 6, start=start, **which) == read(26, start + 6, **which)[start:]).all()


def test_a_start_far_away_is_reached_at_once() -> None:
    assert read(26, 2, start=4 * 10**9).shape == (2, 2)


def test_epochs_differ_and_all_of_them_can_be_repeated() -> None:
    def epochs(seed: int) -> list[list[int]]:
        return read(24, 12, batch=6, seed=seed).reshape(3, 24).tolist()

    first = epochs(5)
    assert all(sorted(epoch) == list(range(24)) for epoch in first)
    assert len({*map(tuple, first), tuple(range(24))}) == 4, "and none is in order"
    assert epochs(5) == first
    assert epochs(6)[0] not in first


def test_what_an_epoch_leaves_out_is_another_each_time() -> None:
    whole = set(range(26))
    left_out = [tuple(whole - set(epoch.tolist())) for epoch in read(26, 40, batch=6).reshape(10, 24)]
    assert len(set(left_out)) > 5


def test_the_shard_may_be_a_tensor() -> None:
    assert (read(26, 4, shards=3, index=tf.constant(2)) == read(26, 4, shards=3, index=2)).all()


@pytest.mark.parametrize(("count", "enough"), [(11, False), (12, True)])
def test_there_must_be_enough_examples_for_a_step(count: int, enough: bool) -> None:
    if enough:
        assert read(count, 3, batch=2, shards=3, local=2).shape == (3, 4)
        return
    with pytest.raises(UserError) as caught:
        read(count, 1, batch=2, shards=3, local=2)
    assert str(caught.value) == "train.batch_size: one step takes 12 examples, the data has 11; make it smaller"


# What data() gives. -------------------------------------------------------------------------------

PAIRS = tf.data.Dataset.from_tensor_slices((np.arange(5), -np.arange(5)))

# Each: what data() gives, and the rule that it breaks.
BAD: list[tuple[Any, str]] = [
    (None, "must give (x, y) or a tf.data.Dataset, gave NoneType"),
    (np.zeros(3), "must give (x, y) or a tf.data.Dataset, gave ndarray"),
    ((np.zeros(3),), "must give (x, y) or a tf.data.Dataset, gave tuple"),
    (
        (np.zeros(3), np.zeros(3), np.zeros(3)),
        "must give (x, y) or a tf.data.Dataset, gave tuple; sample weights go into y, for your loss(y, prediction) to",
    ),
    (
        {"x": np.zeros(3), "y": np.zeros(3)},
        "must give (x, y) or a tf.data.Dataset, gave dict; give a pair: the inputs, which may be a dict",
    ),
    ((np.zeros(3), np.zeros(2)), "x has 3 examples and y 2; they must be equal, not 0"),
    ((np.zeros(0), np.zeros(0)), "x has 0 examples and y 0; they must be equal, not 0"),
    ((1, 2), "must give arrays, gave single values"),
    ((np.zeros(3), np.float32(1)), "must give arrays, gave single values"),
    (([[1, 2], [3]], [0, 1]), "must give arrays: Can't convert non-rectangular Python sequence to Tensor."),
    (({"a": [[1, 2], [3]]}, [0, 1]), "must give arrays: Can't convert non-rectangular Python sequence to Tensor."),
    (({"a": [1, 2], "b": [1]}, [0, 1]), "its arrays have [2, 1, 2] examples; they must be equal, not 0"),
    (({"a": [], "b": []}, []), "its arrays have [0, 0, 0] examples; they must be equal, not 0"),
    (({}, [0]), "must give arrays: "),
    (PAIRS.map(lambda x, y: x), "the Dataset must yield (x, y), it yields TensorSpec(shape=(), dtype=tf.int64"),
    (PAIRS.map(lambda x, y: (x, y, y)), "the Dataset must yield (x, y), it yields (TensorSpec("),
]


@pytest.mark.parametrize(("value", "rule"), BAD, ids=range(len(BAD)))
def test_what_is_no_data_is_named(value: Any, rule: str) -> None:
    with pytest.raises(UserError) as caught:
        inputs.source(value, "test")
    assert str(caught.value).startswith(f"workload: data('test'): {rule}")


def test_lists_are_arrays_too() -> None:
    ((x, y),) = inputs.evaluation(inputs.source(([[1.0], [2.0]], [0, 1]), "test")).as_numpy_iterator()
    assert (x.tolist(), y.tolist()) == ([[1.0], [2.0]], [0, 1])


def test_a_dataset_is_repeated_batched_and_skipped_as_it_is() -> None:
    def steps(start: int, local: int) -> list[list[int]]:
        batches = inputs.batches(
            inputs.source(PAIRS, "train"), batch=2, shards=3, index=1, local=local, seed=0, start=start
        )
        return [x.tolist() for x, _ in itertools.islice(batches.as_numpy_iterator(), 5)]

    assert steps(0, 1) == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]
    assert steps(2, 1) == [[4, 0], [1, 2], [3, 4], [0, 1], [2, 3]]
    assert steps(2, 2) == [[3, 4], [0, 1], [2, 3], [4, 0], [1, 2]]


@pytest.mark.parametrize("given", [(np.arange(5), -np.arange(5)), PAIRS])
def test_evaluation_is_the_whole_split_once_and_in_order(given: Any) -> None:
    batches = list(inputs.evaluation(inputs.source(given, "test"), batch=2).as_numpy_iterator())
    assert [x.tolist() for x, _ in batches] == [[0, 1], [2, 3], [4]]
    assert [y.tolist() for _, y in batches] == [[0, -1], [-2, -3], [-4]]


@pytest.mark.parametrize("pairs", [PAIRS.repeat(), PAIRS.repeat(-1).shuffle(3)])
def test_an_evaluation_over_endless_data_is_refused(pairs: Any) -> None:
    with pytest.raises(UserError, match=r"^workload: data\('test'\): the Dataset never ends; leave repeat\(\) out"):
        inputs.evaluation(inputs.source(pairs, "test"))
    assert len(list(inputs.evaluation(inputs.source(pairs.take(7), "test"), batch=2))) == 4


# What an input_fn gives. --------------------------------------------------------------------------


def examples(batches: Any, count: int) -> list[list[int]]:
    return [x.tolist() for x, _ in itertools.islice(batches.as_numpy_iterator(), count)]


# Each: what input_fn() gives where batches of 2 are asked for, and the rule that it breaks.
BAD_BATCHES: list[tuple[Any, str]] = [
    (None, "must give a tf.data.Dataset, gave NoneType"),
    ((np.zeros(4), np.zeros(4)), "must give a tf.data.Dataset, gave tuple"),
    (PAIRS.batch(2).map(lambda x, y: x), "the Dataset must yield (features, labels), it yields TensorSpec(shape=(N"),
    (PAIRS.batch(2).map(lambda x, y: (x, y, y)), "the Dataset must yield (features, labels), it yields (TensorSpec("),
    (PAIRS.batch(2).map(lambda x, y: {"x": x, "y": y}), "the Dataset must yield (features, labels), it yields {'x'"),
    (PAIRS.batch(3), "gives batches of 3, the spec asks for 2: batch(context.batch_size)"),
    (PAIRS.batch(1), "gives batches of 1, the spec asks for 2: batch(context.batch_size)"),
    (PAIRS.take(1).batch(2), "gives batches of 1, the spec asks for 2: batch(context.batch_size)"),
    (PAIRS.take(0).batch(2), "gives nothing, the spec asks for 2: batch(context.batch_size)"),
    (PAIRS, "gives single examples, the spec asks for 2: batch(context.batch_size)"),
    (PAIRS.map(lambda x, y: ({"x": x}, {"y": y})), "gives single examples, the spec asks for 2: batch("),
]


@pytest.mark.parametrize(("value", "rule"), BAD_BATCHES, ids=range(len(BAD_BATCHES)))
def test_what_is_no_batches_is_named(value: Any, rule: str) -> None:
    with pytest.raises(UserError) as caught:
        inputs.batches_of_input_fn(value, batch=2, skip=0)
    assert str(caught.value).startswith(f"workload: input_fn(): {rule}")


@pytest.mark.parametrize(("skip", "first"), [(0, [0, 1]), (1, [2, 3]), (2, [0, 1]), (7, [2, 3])])
def test_batches_are_repeated_forever_and_those_before_are_skipped(skip: int, first: list[int]) -> None:
    got = examples(inputs.batches_of_input_fn(PAIRS.take(4).batch(2), batch=2, skip=skip), 9)
    assert got[0] == first
    assert got == ([[0, 1], [2, 3]] * 5)[skip % 2 :][:9]


def test_features_and_labels_may_be_named() -> None:
    named = PAIRS.batch(2).map(lambda x, y: ({"x": x, "twice": 2 * x}, {"y": y}))
    ((features, labels),) = inputs.batches_of_input_fn(named, batch=2, skip=1).take(1).as_numpy_iterator()
    assert {name: values.tolist() for name, values in features.items()} == {"x": [2, 3], "twice": [4, 6]}
    assert labels["y"].tolist() == [-2, -3]


def test_a_smaller_last_batch_is_left_out() -> None:
    assert examples(inputs.batches_of_input_fn(PAIRS.take(3).batch(2), batch=2, skip=0), 3) == [[0, 1], [0, 1], [0, 1]]


def test_in_the_graph_that_a_ps_worker_is_sent_too_batches_are_those_of_the_spec() -> None:
    @tf.function(autograph=False)
    def second() -> Any:
        batches = iter(inputs.batches_of_input_fn(PAIRS.take(5).batch(2), batch=2, skip=0))
        return [next(batches)[0] for _ in range(3)][-1]

    assert second().numpy().tolist() == [0, 1]


# Epochs. ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "epochs", "per_step", "steps"), [(26, 1, 6, 4), (26, 3, 6, 12), (5, 2, 6, 2)])
def test_steps_in_epochs(count: int, epochs: int, per_step: int, steps: int) -> None:
    assert inputs.steps_in_epochs(source(count), epochs, per_step) == steps


def test_epochs_of_a_dataset_are_refused() -> None:
    with pytest.raises(UserError, match=r"^train\.epochs: data\(\) gives a Dataset, .*; give train\.steps instead$"):
        inputs.steps_in_epochs(inputs.source(PAIRS, "train"), 1, 1)


def test_arrays_by_name_are_read_together() -> None:
    numbers = np.arange(26)
    given = inputs.source(({"a": numbers, "b": np.stack([numbers, numbers], 1)}, {"c": -numbers}), "train")
    assert given.count() == 26
    dataset = inputs.batches(given, batch=6, shards=1, index=0, local=1, seed=5, start=0)
    for (x, y), plain in zip(dataset.take(9).as_numpy_iterator(), read(26, 9, batch=6), strict=True):
        assert (x["a"] == plain).all()
        assert (x["b"] == plain[:, None]).all()
        assert (y["c"] == -plain).all()
    assert [len(y["c"]) for _, y in inputs.evaluation(given, 20)] == [20, 6]


def dataset_of(*shapes: tuple[int, ...]) -> Source:
    arrays = tuple(np.zeros((4, *shape)) for shape in shapes)
    return Source(dataset=tf.data.Dataset.from_tensor_slices((arrays, np.zeros(4))))


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
    given = Source(dataset=PAIRS.map(lambda x, y: (tf.zeros([8]), y)).batch(3))
    with pytest.raises(UserError, match=r"with x \(None, 8\) for the model's input \(None, 8\); it must give single"):
        inputs.require_examples(given, [tf.TensorSpec((None, 8))], "mine.py")


def test_a_dataset_of_weights_or_dicts_is_refused_with_the_fix() -> None:
    for value, way_out in [
        (PAIRS.map(lambda x, y: (x, y, y)), "; sample weights go into y, for your loss(y, prediction) to apply them"),
        (PAIRS.map(lambda x, y: {"x": x, "y": y}), "; give a pair: the inputs, which may be a dict, and the labels"),
    ]:
        with pytest.raises(UserError) as caught:
            inputs.source(value, "train")
        assert str(caught.value).endswith(way_out)
