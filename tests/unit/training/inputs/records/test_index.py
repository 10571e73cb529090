"""Indexes of files, whole and damaged."""

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.inputs.records.written import COUNTS, lines, numbers, open_all, tfrecords
from trainer.job.errors import UserError
from trainer.training.inputs.records import scan, storage


@pytest.mark.parametrize("size", [1, 100, 20_000, 70_000, 300_000])
def test_records_of_any_size_are_found(tmp_path: Path, size: int) -> None:
    contents = [b"%05d" % each * (size // 5 * (each % 3) // 2) for each in range(50)]
    with tf.io.TFRecordWriter(str(tmp_path / "t.tfrecord")) as file:
        for each in contents:
            file.write(each)
    with storage.opened(str(tmp_path / "t.tfrecord")) as plain:
        found = scan.scan(plain, "tfrecord")
    sizes = [16 + len(each) for each in contents]
    assert found.starts.tolist() == [0, *np.cumsum(sizes).tolist()][:-1]
    assert (found.end, found.damage) == (sum(sizes), None)


def test_a_record_whose_length_looks_like_gzip_is_read(tmp_path: Path) -> None:
    contents = b"x" * int.from_bytes(b"\x1f\x8b\x00", "little")
    with tf.io.TFRecordWriter(str(tmp_path / "t.tfrecord")) as file:
        file.write(contents)
    with storage.opened(str(tmp_path / "t.tfrecord")) as plain:
        assert plain.read(0, 2) == b"\x1f\x8b"
        assert scan.compression(plain, "tfrecord") == ""


def test_lines_end_with_or_without_a_line_feed_and_may_be_empty(tmp_path: Path) -> None:
    for name, text in [("a", b"1\n\n3\n"), ("b", b"4\r\n5"), ("c", b""), ("d", b"\n"), ("e", "6é\n".encode() * 9)]:
        (tmp_path / f"{name}.txt").write_bytes(text)
    given = open_all(tmp_path, "*.txt", parse=lambda line: line)
    found = [line.decode() for batch in given.evaluation(4).as_numpy_iterator() for line in batch]
    assert found == ["1", "", "3", "4", "5", "", *["6é"] * 9]
    assert given.count() == 15


def test_long_texts_are_indexed_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_TEXT_CHUNK", 1000)
    lines(tmp_path)
    given = open_all(tmp_path)
    assert numbers(given) == list(range(sum(COUNTS)))


def test_a_compressed_file_may_have_several_parts(tmp_path: Path) -> None:
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress(b"1\n2\n") + gzip.compress(b"3\n"))
    given = open_all(tmp_path, "t.txt.gz")
    assert (given.count(), numbers(given)) == (3, [1, 2, 3])


# Each: a file made of a compressed one of the numbers 0 to 4, and how often these numbers are in it, or the message.
PARTS: dict[str, tuple[str, Callable[[bytes], bytes], int | str]] = {
    "two": ("GZIP", lambda packed: packed + packed, 2),
    "zeros behind": ("GZIP", lambda packed: packed + bytes(5000), 1),
    "many zeros behind": ("GZIP", lambda packed: packed + packed + bytes(1 << 21), 2),
    "an empty end": ("GZIP", lambda packed: packed + gzip.compress(b""), 1),
    "an empty part": ("GZIP", lambda packed: gzip.compress(b"") + packed, "has an empty part, behind which TensorFlow"),
    "others behind": ("GZIP", lambda packed: packed + b"more", "has other data behind its end"),
    "a part behind zeros": ("GZIP", lambda packed: packed + bytes(9) + packed, "has other data behind its end"),
    "of zlib": ("ZLIB", lambda packed: packed + packed, "has other data behind its end"),
    "zeros behind zlib": ("ZLIB", lambda packed: packed + bytes(9), "has other data behind its end"),
}


@pytest.mark.parametrize(
    ("format", "case"),
    [*(("tfrecord", case) for case in PARTS), *(("text", case) for case in PARTS if "zlib" not in case)],
)
def test_parts_of_a_compressed_file_are_read_as_tensorflow_reads_them(tmp_path: Path, case: str, format: str) -> None:
    compression, made, wanted = PARTS[case]
    if format == "text":
        packed = gzip.compress(b"".join(b"%d\n" % each for each in range(5)))
    else:
        tfrecords(tmp_path, [5], compression)
        packed = (tmp_path / "t-0.tfrecord").read_bytes()
    path = tmp_path / "parts"
    path.write_bytes(made(packed))
    if isinstance(wanted, int):
        assert numbers(open_all(tmp_path, "parts", format=format)) == list(range(5)) * wanted
    else:
        with pytest.raises(UserError, match=f"^{path}: {compression}: {wanted}.*; write the file again$"):
            open_all(tmp_path, "parts", format=format)


def test_an_empty_file_may_lie_beside_compressed_ones(tmp_path: Path) -> None:
    lines(tmp_path, [5, 3], "GZIP")
    (tmp_path / "t-").write_bytes(b"")
    given = open_all(tmp_path, format="text")
    assert numbers(given) == list(range(8))


def test_a_compressed_file_takes_little_memory(tmp_path: Path) -> None:
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress(b"x" * (100 << 20), 1))
    tracemalloc.start()
    with storage.opened(str(tmp_path / "t.txt.gz")) as plain:
        found = scan.scan(scan.Inflated(plain, "GZIP"), "text")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.starts) == 1
    assert most < 32 << 20
