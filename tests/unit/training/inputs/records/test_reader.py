"""Batches of records, judged by the numbers that the tests wrote into them."""

import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.inputs.records.written import COUNTS, lines, number, open_all, tfrecords
from trainer.job.errors import UserError
from trainer.training.inputs.records import damage
from trainer.training.inputs.records.reader import Records
from trainer.training.inputs.source import Part

pytestmark = pytest.mark.part("training")

TOTAL = sum(COUNTS)
FORMATS: dict[str, Callable[[Path], None]] = {
    "tfrecord": tfrecords,
    "gzip": lambda folder: tfrecords(folder, compression="GZIP"),
    "zlib": lambda folder: tfrecords(folder, compression="ZLIB"),
    "text": lines,
    "crlf": lambda folder: lines(folder, end="\r\n"),
    "text.gz": lambda folder: lines(folder, compression="GZIP"),
}


def read(records: Records, steps: int, **part: Any) -> Any:
    """The numbers of the examples of one shard, [steps, local * batch]."""
    wanted = Part(**{"seed": 5, **part})
    batches = itertools.islice(records.batches(wanted).as_numpy_iterator(), steps * wanted.local)
    return np.array(list(batches)).reshape(steps, -1)


@pytest.fixture(params=FORMATS)
def records(request: Any, tmp_path: Path) -> Records:
    FORMATS[request.param](tmp_path)
    return open_all(tmp_path)


@pytest.fixture
def plain(tmp_path: Path) -> Records:
    tfrecords(tmp_path)
    return open_all(tmp_path)


def test_every_record_is_read_once_in_an_epoch(records: Records) -> None:
    assert records.count() == TOTAL == 457
    epochs = read(replace(records, window=200), 2 * 19, batch=24).reshape(2, -1)
    for epoch in epochs:
        assert len(set(epoch.tolist())) == len(epoch) == 456
        assert set(epoch.tolist()) < set(range(TOTAL))
    assert (epochs[0] != epochs[1]).any()


def test_those_that_no_step_has_room_for_are_others_in_each_epoch(tmp_path: Path) -> None:
    # A small file is one block, whose last records would else be left out in every epoch.
    tfrecords(tmp_path, [53], compression="GZIP")
    parts = [read(open_all(tmp_path), 30 * 5, batch=5, shards=2, index=i).reshape(30, -1) for i in range(2)]
    left_out = [frozenset(range(53)) - set(epoch) for epoch in np.concatenate(parts, axis=1).tolist()]
    assert {len(each) for each in left_out} == {3}
    assert not frozenset.intersection(*left_out)
    assert len(set(left_out)) == 4, "0 to 3 of them at the beginning of the block, the others at its end"


def test_evaluation_is_all_records_once_and_in_order(records: Records) -> None:
    batches = list(records.evaluation(50).as_numpy_iterator())
    assert np.concatenate(batches).tolist() == list(range(TOTAL))
    assert {len(batch) for batch in batches[:-1]} == {50}


@pytest.mark.parametrize(
    ("window", "shuffle", "shards", "local"), [(None, True, 3, 1), (100, True, 2, 2), (100, False, 2, 2)]
)
def test_many_shards_read_together_what_one_of_their_size_reads_step_by_step(
    plain: Records, window: int | None, shuffle: bool, shards: int, local: int
) -> None:
    plain = replace(plain, window=window, shuffle=shuffle)
    one, batch = read(plain, 45, batch=24), 24 // (shards * local)
    parts = [read(plain, 45, batch=batch, shards=shards, index=tf.constant(i), local=local) for i in range(shards)]
    assert (np.concatenate(parts, axis=1) == one).all()


@pytest.mark.parametrize(("window", "shuffle"), [(None, True), (100, True), (1, False)])
def test_starting_at_a_step_is_skipping_those_before(plain: Records, window: int | None, shuffle: bool) -> None:
    plain = replace(plain, window=window, shuffle=shuffle)
    part: dict[str, Any] = {"batch": 4, "shards": 3, "index": 1, "local": 2}
    whole = read(plain, 60, **part)
    for start in (19, int(np.random.default_rng(0).integers(1, 50))):
        assert (read(plain, 10, **part, start=start) == whole[start : start + 10]).all(), start


# Each: what differs in a file of a ps-worker.
OTHERS: dict[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "shorter": lambda path: os.truncate(path, 1000),
    "longer by a tail": lambda path: path.write_bytes(path.read_bytes() + path.read_bytes()[-16:]),
    "empty": lambda path: path.write_bytes(b""),
    "of other contents": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_ps_worker_with_another_file_than_the_chief_is_named(tmp_path: Path, plain: Records, case: str) -> None:
    batches = plain.batches(Part(4, 2, tf.constant(1)))
    shutil.copy2(path := tmp_path / "t-2.tfrecord", chiefs := tmp_path / "chief's")
    OTHERS[case](path)
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.NotFoundError)) as caught:
        next(iter(batches))
    chiefs.rename(path)
    assert damage.named(caught.value) == (
        f"{path}: a ps-worker has another file than the chief, or none; every task must see the same files"
    )


def test_an_order_follows_from_seed_and_epoch(plain: Records) -> None:
    first = read(plain, 19, batch=24)
    assert (first == read(plain, 19, batch=24)).all()
    assert (first != read(plain, 19, batch=24, seed=6)).any()
    assert sorted(first.ravel().tolist()) != first.ravel().tolist()


def test_without_shuffle_records_keep_their_order(plain: Records) -> None:
    kept = read(replace(plain, shuffle=False), 20, batch=24)
    assert kept[:19].ravel().tolist() == list(range(456))
    assert kept[19].tolist() == list(range(24))


def test_a_small_window_mixes_near_records_of_all_files_in_the_epoch(tmp_path: Path) -> None:
    tfrecords(tmp_path, [400] * 6)  # 1.8 MB each, 7 blocks
    epoch = read(replace(open_all(tmp_path), window=300), 48, batch=50).ravel()
    assert len({int(each) // 400 for each in epoch[:300]}) > 2, "a window has blocks of several files"
    assert (np.diff(epoch) == 1).mean() < 0.1


def test_a_start_far_away_is_reached_at_once(plain: Records) -> None:
    assert read(plain, 2, batch=24, start=19 * 10**9).shape == (2, 24)


def test_what_parse_gives_may_have_any_form_and_branch_on_tensors(tmp_path: Path) -> None:
    tfrecords(tmp_path)

    def parse(record: Any) -> Any:
        n = number(record)
        weight = 0.5
        if n % 2 == 0:  # AutoGraph converts it
            weight = 1.0
        return {"n": n, "twice": 2 * n}, -n, weight

    given = open_all(tmp_path, parse=parse)
    (x, y, weights), *_ = given.batches(Part(24, seed=5)).take(1).as_numpy_iterator()
    assert (x["twice"] == 2 * x["n"]).all()
    assert (y == -x["n"]).all()
    assert (weights == np.where(x["n"] % 2 == 0, 1.0, 0.5)).all()
    x, y, weights = next(iter(given.evaluation(10).as_numpy_iterator()))
    assert weights.tolist() == [1.0, 0.5] * 5


def test_parse_may_use_tables_and_layers(tmp_path: Path) -> None:
    tfrecords(tmp_path)
    keys = tf.range(TOTAL, dtype=tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, -keys), 0)
    layer = keras.layers.StringLookup(vocabulary=[str(each) for each in range(TOTAL)], num_oov_indices=0)

    def parse(record: Any) -> Any:
        n = table.lookup(number(record))
        return n, layer(tf.strings.as_string(-n))

    given = open_all(tmp_path, parse=parse)
    for batches in (given.batches(Part(24, seed=5)).take(3), given.evaluation(50)):
        assert all((x == -y).all() for x, y in batches.as_numpy_iterator())


def test_in_the_graph_that_a_ps_worker_is_sent_too_the_records_are_the_same(plain: Records) -> None:
    @tf.function(autograph=False)
    def two_epochs() -> Any:
        return next(iter(plain.batches(Part(24, seed=5)).take(38).batch(38)))

    assert (two_epochs().numpy() == read(plain, 38, batch=24)).all()
    assert "PyFunc" not in str(two_epochs.get_concrete_function().graph.as_graph_def())


@pytest.mark.parametrize("shuffle", [True, False])
def test_there_must_be_enough_records_for_a_step(plain: Records, shuffle: bool) -> None:
    assert read(replace(plain, shuffle=shuffle), 2, batch=457).shape == (2, 457)
    with pytest.raises(UserError) as caught:
        plain.batches(Part(229, shards=2))
    assert str(caught.value) == "train.batch_size: one step takes 458 examples, the data has 457; make it smaller"
