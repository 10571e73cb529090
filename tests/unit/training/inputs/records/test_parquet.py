"""Rows of Parquet files, judged by the table that the tests wrote and by pyarrow's own reader."""

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from tests.unit.training.inputs.records.written import open_all
from trainer.job.errors import UserError
from trainer.model_dir import layout
from trainer.training.inputs.records import index, kept, parquet
from trainer.training.inputs.records.reader import Records
from trainer.training.inputs.source import Part
from trainer.workloads import locate

pytestmark = pytest.mark.part("training")

COUNTS = [100, 0, 57, 300]
TOTAL = sum(COUNTS)
ROWS = 40
"""Of a row group."""


def table(first: int, count: int) -> Any:
    n = np.arange(first, first + count)
    return pa.table(
        {
            "n": n,
            "half": (n / 2).astype(np.float32),
            "small": (n % 200).astype(np.uint8),
            "even": n % 2 == 0,
            "text": [f"row {each} é" for each in n],
            "bytes": pa.array([b"\xff\0" * (each % 3) for each in n], pa.binary()),
            "kind": pa.array([f"k{each % 3}" for each in n], pa.string()).dictionary_encode(),
            "vector": pa.FixedSizeListArray.from_arrays(np.arange(3 * first, 3 * (first + count), dtype=np.float32), 3),
        }
    )


def write(folder: Path) -> None:
    first = 0
    for i, count in enumerate(COUNTS):
        pq.write_table(table(first, count), folder / f"t-{i}.parquet", row_group_size=ROWS)
        first += count


def number(row: Any) -> Any:
    return row["n"]


@pytest.fixture
def given(tmp_path: Path) -> Records:
    write(tmp_path)
    return open_all(tmp_path, parse=number)


def read(records: Records, steps: int, **part: Any) -> Any:
    wanted = Part(**{"seed": 5, **part})
    batches = itertools.islice(records.batches(wanted).as_numpy_iterator(), steps * wanted.local)
    return np.array(list(batches)).reshape(steps, -1)


def test_every_row_is_read_once_in_an_epoch_in_an_order_of_the_seed(given: Records) -> None:
    assert given.count() == TOTAL == 457
    epochs = read(given, 2 * 19, batch=24).reshape(2, -1)
    for epoch in epochs:
        assert len(set(epoch.tolist())) == len(epoch) == 456
    assert (epochs[0] != epochs[1]).any()
    assert (epochs == read(given, 2 * 19, batch=24).reshape(2, -1)).all()


@pytest.mark.parametrize("shuffle", [90, False])
def test_shards_read_what_one_reads_and_a_resume_begins_at_its_step(tmp_path: Path, shuffle: Any) -> None:
    write(tmp_path)
    given = open_all(tmp_path, parse=number, shuffle=shuffle)
    one = read(given, 45, batch=24)
    parts = [read(given, 45, batch=6, shards=2, index=each, local=2) for each in range(2)]
    assert (np.concatenate(parts, axis=1) == one).all()
    for start in [1, 19, 33]:
        assert (read(given, 5, batch=24, start=start) == one[start : start + 5]).all()


def test_a_row_has_the_values_that_were_written(tmp_path: Path) -> None:
    write(tmp_path)
    given = open_all(tmp_path, parse=lambda row: row)
    rows = list(given.evaluation(50).as_numpy_iterator())
    assert [len(each["n"]) for each in rows] == [50] * 9 + [7]
    wanted = table(0, TOTAL)
    for name in wanted.column_names:
        found = np.concatenate([each[name] for each in rows])
        if found.dtype == object:
            values = [each.encode() if isinstance(each, str) else each for each in wanted.column(name).to_pylist()]
            assert found.tolist() == values
        else:
            assert found.tolist() == wanted.column(name).to_pylist()
    types = {name: rows[0][name].dtype for name in ("n", "half", "small", "even", "vector")}
    assert types == {"n": "int64", "half": "float32", "small": "uint8", "even": "bool", "vector": "float32"}


def test_only_row_groups_from_the_step_on_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(table(0, 4000), tmp_path / "t.parquet", row_group_size=100)
    given = open_all(tmp_path, "t.parquet", parse=number, shuffle=200)
    groups: list[int] = []
    original = parquet.Rows._of_block
    monkeypatch.setattr(parquet.Rows, "_of_block", lambda rows, block: groups.append(block) or original(rows, block))  # type: ignore[func-returns-value]
    read(given, 1, batch=10, start=360)
    assert 0 < len(groups) < 15  # those of a few windows


def test_columns_choose_what_is_read(tmp_path: Path) -> None:
    write(tmp_path)
    given = open_all(tmp_path, columns=["n", "even"], parse=lambda row: dict(row))
    assert given.rows is not None
    assert given.rows.specs.keys() == given.batches(Part(8)).element_spec.keys() == {"n", "even"}


def refused(folder: Path, **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        open_all(folder, **{"parse": number, **more})
    return str(caught.value)


def test_what_parse_cannot_take_is_refused_by_column(tmp_path: Path) -> None:
    odd = (
        table(0, 10)
        .append_column("when", pa.array(np.arange(10), pa.timestamp("ns")))
        .append_column("l", [[[1]] * 9 + [[]]])
    )
    pq.write_table(odd, tmp_path / "t-0.parquet")
    path = tmp_path / "t-0.parquet"
    assert refused(tmp_path).startswith(f"workload: data('train'): {path}: column 'when' is timestamp[ns]; parse takes")
    assert "column 'l' is list<element: int64>; parse takes" in refused(tmp_path, columns=["l"])
    assert "has no column 'm'; it has n, half, small," in refused(tmp_path, columns=["m"])
    assert open_all(tmp_path, columns=["n"], parse=number).count() == 10
    assert "parse(record): KeyError: 'half'" in refused(tmp_path, columns=["n"], parse=lambda row: row["half"])
    assert "trainer.files: Parquet is read by Python, and ps-workers run graphs" in refused(tmp_path, in_graphs=True)


def test_files_with_other_columns_or_without_values_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    other = table(0, 5)
    path = tmp_path / "t-9.parquet"
    pq.write_table(other.set_column(1, "half", [pa.array([1.0] * 5)]), path)
    assert f"column 'half' is float in {tmp_path}/t-0.parquet, and double in {path}; make them alike" in refused(
        tmp_path
    )
    pq.write_table(other.drop_columns(["half"]), path)
    assert f"and missing in {path}" in refused(tmp_path)
    pq.write_table(other.set_column(0, "n", [pa.array([1, 2, None, 4, 5])]), path)
    assert refused(tmp_path).startswith(f"{path}: column 'n' has rows without a value (null)")
    pq.write_table(other.set_column(0, "n", [pa.array([1, 2, None, 4, 5])]), path, write_statistics=False)
    with pytest.raises(tf.errors.OpError) as caught:
        list(open_all(tmp_path, parse=number).evaluation())
    text = locate.python_error(str(caught.value), "mine.py")
    assert str(text).startswith(f"{path}: column 'n' has rows without a value (null); write the file")


def test_columns_with_dots_in_their_names_are_distinct(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays([1.0, None, 3.0, 4.0], 2)
    columns = {"x": [1.0, 2.0], "x.1": [None, 5.0], "v.list": vectors, "v": [3, 4], "s": [{"a": 1}, {"a": None}]}
    path = tmp_path / "t-0.parquet"
    pq.write_table(pa.table({**columns, "full.1": [6.0, 7.0]}), path)
    given = open_all(tmp_path, columns=["x", "v", "full.1"], parse=lambda row: row)
    (rows,) = given.evaluation(2).as_numpy_iterator()
    assert {name: each.tolist() for name, each in rows.items()} == {"x": [1, 2], "v": [3, 4], "full.1": [6, 7]}
    assert "column 's' is struct<a: int64>; parse takes" in refused(tmp_path, columns=["x", "s"])
    for name in ("x.1", "v.list"):
        assert refused(tmp_path, columns=["x", name], parse=lambda row: row["x"]).startswith(
            f"{path}: column {name!r} has rows without a value (null)"
        )


def test_parquet_is_refused_where_graphs_read(tmp_path: Path) -> None:
    write(tmp_path)
    told = "workload: data('train'): trainer.files: Parquet is read by Python, and ps-workers run graphs only;"
    assert refused(tmp_path, in_graphs=True).startswith(told)


def test_files_of_a_bucket_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.io.gfile, "glob", lambda pattern: [pattern])
    assert refused(tmp_path, pattern="gs://mine/t.parquet").endswith("read from folders; mount the bucket as one")


def test_damaged_files_are_named(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "t-2.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    assert refused(tmp_path).startswith(f"{path}: is not a Parquet file, or is cut off")
    path.write_bytes(b"PAR1" + bytes(50) + b"PAR1")
    assert refused(tmp_path).startswith(f"{path}: cannot be read as Parquet: ")
    path.write_bytes(whole[:4] + bytes(len(whole) // 3) + whole[4 + len(whole) // 3 :])
    with pytest.raises(tf.errors.OpError) as caught:
        list(open_all(tmp_path, parse=number).evaluation())
    text = locate.python_error(str(caught.value), "mine.py")
    assert str(text).startswith(f"{path}: row group 0: cannot be read as Parquet: ")


def test_a_kept_index_is_used_and_a_changed_file_is_not_taken_for_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    first = open_all(tmp_path, parse=number).index
    os.utime(tmp_path / "t-0.parquet")
    assert open_all(tmp_path, parse=number).index.sha256 == first.sha256
    pq.write_table(table(1, 100), tmp_path / "t-0.parquet", row_group_size=ROWS)
    assert open_all(tmp_path, parse=number).index.sha256 != first.sha256
    monkeypatch.setattr(parquet, "index", None)
    assert open_all(tmp_path, parse=number).count() == TOTAL
    assert kept._read(layout.files(tmp_path / "run") / "train.npz") is not None


def test_indexing_is_reported_and_kept_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    names = [str(path) for path in sorted(tmp_path.glob("*.parquet"))]
    monkeypatch.setattr(kept, "_KEEP_SECONDS", -1)
    monkeypatch.setattr(index, "_THREADS", 1)
    reports: list[Any] = []
    parts: list[Any] = []

    def report(number: int, line: str | None) -> None:
        reports.append((number, line))
        parts.append(kept._read(layout.files(tmp_path / "run") / ".part-train.npz"))

    found = kept.index(names, "parquet", "train", str(tmp_path / "run"), 0, report)
    assert found.count == TOTAL
    footers = sum(int.from_bytes(Path(name).read_bytes()[-8:-4], "little") + 16 for name in names)
    assert reports[-1] == (footers + 4, "train: 4 of 4 files indexed, 0.00 GB read")
    assert [file.records for file in parts[-1].files] == COUNTS


def test_without_pyarrow_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    assert refused(tmp_path) == (
        "trainer.files: Parquet files are read by pyarrow, which is not installed: pip install pyarrow, and add it to "
        "your image (images/README.md)"
    )
