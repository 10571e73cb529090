import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer.job.errors import UserError
from trainer.training import inputs
from trainer.training.inputs import Part
from trainer.training.runtime.user_code import graph_error
from trainer.workloads.batched import batched

PAIRS = tf.data.Dataset.from_tensor_slices((np.arange(5), -np.arange(5)))


def given(value: Any, start: int = 0) -> Any:
    """The batches of an input_fn that gives this value."""
    return inputs.InputFn(lambda context: value, 1).batches(Part(2, start=start))


def test_a_dataset_is_repeated_batched_and_skipped_as_it_is() -> None:
    def steps(start: int, local: int) -> list[list[int]]:
        batches = inputs.source(PAIRS, "data('train')").batches(Part(2, 3, 1, local, 0, start))
        return [x.tolist() for x, _ in itertools.islice(batches.as_numpy_iterator(), 5)]

    assert steps(0, 1) == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]
    assert steps(2, 1) == [[4, 0], [1, 2], [3, 4], [0, 1], [2, 3]]
    assert steps(2, 2) == [[3, 4], [0, 1], [2, 3], [4, 0], [1, 2]]


@pytest.mark.parametrize("given", [(np.arange(5), -np.arange(5)), PAIRS])
def test_evaluation_is_the_whole_split_once_and_in_order(given: Any) -> None:
    batches = list(inputs.source(given, "data('test')").evaluation(2).as_numpy_iterator())
    assert [x.tolist() for x, _ in batches] == [[0, 1], [2, 3], [4]]
    assert [y.tolist() for _, y in batches] == [[0, -1], [-2, -3], [-4]]


@pytest.mark.parametrize("pairs", [PAIRS.repeat(), PAIRS.repeat(-1).shuffle(3)])
def test_an_evaluation_over_endless_data_is_refused(pairs: Any) -> None:
    with pytest.raises(UserError, match=r"^workload: data\('test'\): the Dataset never ends; leave repeat\(\) out"):
        inputs.source(pairs, "data('test')").evaluation()
    assert len(list(inputs.source(pairs.take(7), "data('test')").evaluation(2))) == 4


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
    (PAIRS.take(0).batch(2), "gives this task no batches; the spec asks for 2: batch(context.batch_size)"),
    (PAIRS, "gives single examples, the spec asks for 2: batch(context.batch_size)"),
    (PAIRS.map(lambda x, y: ({"x": x}, {"y": y})), "gives single examples, the spec asks for 2: batch("),
]


@pytest.mark.parametrize(("value", "rule"), BAD_BATCHES, ids=range(len(BAD_BATCHES)))
def test_what_is_no_batches_is_named(value: Any, rule: str) -> None:
    with pytest.raises(UserError) as caught:
        given(value)
    assert str(caught.value).startswith(f"workload: input_fn(): {rule}")


@pytest.mark.parametrize(("skip", "first"), [(0, [0, 1]), (1, [2, 3]), (2, [0, 1]), (7, [2, 3])])
def test_batches_are_repeated_forever_and_those_before_are_skipped(skip: int, first: list[int]) -> None:
    got = examples(given(PAIRS.take(4).batch(2), skip), 9)
    assert got[0] == first
    assert got == ([[0, 1], [2, 3]] * 5)[skip % 2 :][:9]


def test_features_and_labels_may_be_named() -> None:
    named = PAIRS.batch(2).map(lambda x, y: ({"x": x, "twice": 2 * x}, {"y": y}))
    ((features, labels),) = given(named, 1).take(1).as_numpy_iterator()
    assert {name: values.tolist() for name, values in features.items()} == {"x": [2, 3], "twice": [4, 6]}
    assert labels["y"].tolist() == [-2, -3]


def test_a_smaller_last_batch_is_left_out() -> None:
    assert examples(given(PAIRS.take(3).batch(2)), 3) == [[0, 1], [0, 1], [0, 1]]


def test_in_the_graph_that_a_ps_worker_is_sent_too_batches_are_those_of_the_spec() -> None:
    @tf.function(autograph=False)
    def second() -> Any:
        batches = iter(given(PAIRS.take(5).batch(2)))
        return [next(batches)[0] for _ in range(3)][-1]

    assert second().numpy().tolist() == [0, 1]


# trainer.batched. ---------------------------------------------------------------------------------

NUMBERS = tf.data.Dataset.range(24)
# Each: a Dataset of the examples 0 to 23 in another form, and the numbers of the examples in a batch.
FORMS: dict[str, tuple[Any, Any]] = {
    "x alone": (NUMBERS, lambda x: x),
    "x, y, weights": (NUMBERS.map(lambda n: (n, -n, n / 2)), lambda batch: batch[2] * 2),
    "dicts": (NUMBERS.map(lambda n: ({"a": n, "b": 2 * n}, {"c": n})), lambda batch: batch[0]["b"] // 2),
    "tuples": (NUMBERS.map(lambda n: ((n, n), n)), lambda batch: batch[0][1]),
    "text": (NUMBERS.map(lambda n: (tf.strings.as_string(n), n)), lambda batch: batch[0].astype(int)),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("whole", [False, True])
def test_over_all_shards_each_example_of_each_form_occurs_once(name: str, whole: bool) -> None:
    dataset, numbers = FORMS[name]
    found = []
    for index in range(3):
        mine = dataset.shard(3, index)
        given = inputs.source(batched(mine.batch(2, drop_remainder=True)) if whole else mine, "data('train')")
        assert given.of_one_shard
        assert given.count() == 8
        for batch in given.batches(Part(2, shards=3, index=index, local=2, start=2)).take(4).as_numpy_iterator():
            found.append(numbers(batch))
    assert sorted(np.concatenate(found).astype(int).tolist()) == [*range(24)]


def test_without_their_remainder_alone_batches_are_counted() -> None:
    assert inputs.source(batched(PAIRS.batch(2)), "data('train')").count() is None
    assert inputs.source(batched(PAIRS.batch(2, drop_remainder=True)), "data('train')").count() == 4


def test_batches_of_the_users_own_are_evaluated_as_they_are() -> None:
    given = inputs.source(batched(PAIRS.batch(2)), "data('test')")
    assert [x.tolist() for x, _ in given.evaluation().as_numpy_iterator()] == [[0, 1], [2, 3], [4]]
    with pytest.raises(UserError, match=r"^workload: data\('test'\): the Dataset never ends"):
        inputs.source(batched(PAIRS.repeat().batch(2)), "data('test')").evaluation()


# Each: Datasets of batches where those of 2 are asked for, and the rule that they break.
BAD_OWN: list[tuple[Any, str]] = [
    (PAIRS.batch(3), "gives batches of 3, the spec asks for 2: batch(2)"),
    (PAIRS.take(0).batch(2), "gives this task no batches; the spec asks for 2: batch(2)"),
    (PAIRS.map(lambda x, y: {"x": x}).batch(5), "gives batches of 5, the spec asks for 2: batch(2)"),
]


@pytest.mark.parametrize(("value", "rule"), BAD_OWN, ids=range(len(BAD_OWN)))
def test_batches_of_another_size_than_a_replicas_are_refused(value: Any, rule: str) -> None:
    with pytest.raises(UserError) as caught:
        inputs.source(batched(value), "data('train')").batches(Part(2))
    assert str(caught.value) == f"workload: data('train'): {rule}"


def batches_of(*sizes: int) -> Any:
    """Batches of so many examples, whose numbers count on."""
    ends = np.cumsum(sizes)
    bounds = tf.data.Dataset.from_tensor_slices(np.stack([ends - sizes, ends], 1))
    return bounds.map(lambda each: (tf.range(each[0], each[1]), tf.range(each[0], each[1])))


def test_a_larger_batch_is_an_error_with_its_size_and_what_to_write() -> None:
    given = inputs.source(batched(batches_of(4, 2, 16, 4)), "data('train')").batches(Part(4))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        next(iter(given.skip(1)))
    rule = "workload: data('train'): gives a batch of 16 examples, the spec asks for 4: batch(4)"
    assert graph_error(caught.value, "w.py") == rule


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((4, 4, 1), []),
        ((4, 4), []),
        ((4, 2, 4, 3, 1), ["2 with 5 examples so far", "3 with 6 examples in a pass over the data"]),
        ((4, 1, 1), ["2 with 2 examples so far", "2 with 2 examples in a pass over the data"]),
    ],
)
def test_batches_that_are_left_out_are_counted_and_told_unless_it_is_the_last(sizes: Any, told: list[str]) -> None:
    lines: list[str] = []
    given = inputs.source(batched(batches_of(*sizes)), "data('train')", lines.append).batches(Part(4))
    found = [len(x) for x, _ in given.take(3 * sizes.count(4)).as_numpy_iterator()]
    assert found == [4] * 3 * sizes.count(4)
    assert [line.partition("left out: ")[2].partition(";")[0] for line in lines] == told
    assert inputs.small_batches(batches_of(*sizes), 4) == max(0, len(sizes) - sizes.count(4) - 1)


def test_the_rest_of_the_data_may_come_anywhere_in_a_pass() -> None:
    told = list[str]()
    for seed in range(8):  # in some of them it comes first
        dataset = PAIRS.batch(2).shuffle(3, seed=seed)
        batches = inputs.source(batched(dataset), "data('train')", told.append).batches(Part(2))
        assert {len(x) for x, _ in itertools.islice(batches.as_numpy_iterator(), 20)} == {2}
        assert inputs.small_batches(dataset, 2) == 0
    assert not told


def test_the_examples_of_a_batch_are_those_of_its_labels() -> None:
    """Graphs are merged into one: the parts of x have as many rows as there are nodes and edges."""
    graphs = NUMBERS.batch(4).map(lambda n: ((tf.range(7 + n[0] % 3), tf.range(9)), n))
    given = inputs.source(batched(graphs), "data('train')").batches(Part(4))
    (batch,) = given.skip(1).take(1).as_numpy_iterator()
    assert [len(batch[0][0]), len(batch[0][1]), batch[1].tolist()] == [8, 9, [4, 5, 6, 7]]


def test_the_name_that_workloads_use() -> None:
    assert trainer.batched is batched
    with pytest.raises(AttributeError, match="module 'trainer' has no attribute 'batch'"):
        _ = trainer.batch  # type: ignore[attr-defined]
