"""Damaged records are named by file and offset, or left out up to a limit."""

import functools
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.inputs.records.written import (
    damage_byte,
    numbers,
    open_all,
    starts,
    tfrecords,
)
from trainer.job.errors import UserError
from trainer.training.inputs.records import checksums, damage, kept, scan
from trainer.training.inputs.source import Part

NTH = starts(40)
"""Offsets of the records of a file of 40."""

# Each: what happens to a file of 40 records, and the message about it.
BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "length": (lambda path: damage_byte(path, NTH[17] + 2), f"record 17 at byte {NTH[17]}: its length does not match"),
    "checksum of the length": (lambda path: damage_byte(path, NTH[39] + 9), f"record 39 at byte {NTH[39]}: its length"),
    "cut off in the data": (lambda path: os.truncate(path, NTH[40] - 9), f"record 39 at byte {NTH[39]}: it is cut off"),
    "cut off in a length": (
        lambda path: os.truncate(path, NTH[39] + 5),
        f"record 39 at byte {NTH[39]}: its length is cut off",
    ),
    "no TFRecords": (
        lambda path: path.write_bytes(b"some text, and more"),
        "is not a TFRecord file: it does not begin",
    ),
    "nearly empty": (lambda path: path.write_bytes(b"abc"), "is not a TFRecord file: it does not begin"),
    "the first length": (lambda path: damage_byte(path, 1), "is not a TFRecord file: it does not begin"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_damage_of_the_frames_is_named_before_training(tmp_path: Path, case: str) -> None:
    tfrecords(tmp_path, [5, 40])
    tfrecords(tmp_path, [40], name="broken.tfrecord")
    path, (breaks, message) = tmp_path / "broken.tfrecord", BROKEN[case]
    breaks(path)
    with pytest.raises(UserError) as caught:
        open_all(tmp_path, "*.tfrecord")
    assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(("at", "message"), [(0.5, "cannot be decompressed near byte"), (-1, "cannot be decompressed")])
def test_damage_of_a_compressed_file_is_named(tmp_path: Path, at: float, message: str) -> None:
    tfrecords(tmp_path, [40], "GZIP")
    path = tmp_path / "t-0.tfrecord"
    damage_byte(path, int(path.stat().st_size * at) if at > 0 else path.stat().st_size - 6)
    with pytest.raises(UserError, match=f"^{path}: GZIP: {message}"):
        open_all(tmp_path)


def test_a_compressed_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    tfrecords(tmp_path, [40], "ZLIB")
    path = tmp_path / "t-0.tfrecord"
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(UserError, match=f"^{path}: ZLIB: is cut off; write the file again$"):
        open_all(tmp_path)


def test_damaged_data_is_named_when_it_is_read(tmp_path: Path) -> None:
    tfrecords(tmp_path, [200, 300])
    tfrecords(tmp_path, [200], name="s.tfrecord")
    at = starts(200)[123]
    damage_byte(tmp_path / "s.tfrecord", at + 12)
    given = open_all(tmp_path, "*.tfrecord")
    with pytest.raises(tf.errors.DataLossError) as caught:
        list(given.batches(Part(10)).take(given.count() // 10))
    text = damage.named(caught.value)
    assert text is not None
    assert text.startswith(f"{tmp_path / 's.tfrecord'}: record 123 at byte {at}: its data does not match the checksum;")


def test_damaged_data_in_a_compressed_file_is_named_when_it_is_read(tmp_path: Path) -> None:
    tfrecords(tmp_path, [200])
    damage_byte(tmp_path / "t-0.tfrecord", starts(200)[57] + 13)
    (tmp_path / "z.tfrecord").write_bytes(gzip.compress((tmp_path / "t-0.tfrecord").read_bytes()))
    given = open_all(tmp_path, "z.tfrecord")
    with pytest.raises(tf.errors.DataLossError) as caught:
        list(given.evaluation())
    assert f"z.tfrecord: record 57 at byte {starts(200)[57]}: " in str(damage.named(caught.value))


def test_other_errors_of_whole_files_are_not_blamed_on_them(tmp_path: Path) -> None:
    tfrecords(tmp_path)
    open_all(tmp_path)
    assert damage.named(tf.errors.InvalidArgumentError(None, None, "parse failed")) is None


# Damaged records that are left out. ---------------------------------------------------------------


@pytest.mark.parametrize("case", ["length", "checksum of the length", "cut off in the data", "cut off in a length"])
def test_records_behind_a_damaged_frame_are_found_again(tmp_path: Path, case: str) -> None:
    tfrecords(tmp_path, [40])
    BROKEN[case][0](tmp_path / "t-0.tfrecord")
    given = open_all(tmp_path, max_bad=1)
    lost = 17 if case == "length" else 39
    assert numbers(given) == [each for each in range(40) if each != lost]
    assert given.index.left_out == 1
    assert given.index.first_left_out == f"{tmp_path / 't-0.tfrecord'}: record {lost} at byte {NTH[lost]}"


def test_damaged_data_are_left_out_everywhere(tmp_path: Path) -> None:
    tfrecords(tmp_path, [200, 100])
    bad = [0, 3, 4, 150, 199]
    for each in bad:
        damage_byte(tmp_path / "t-0.tfrecord", starts(200)[each] + 12)
    damage_byte(tmp_path / "t-0.tfrecord", starts(200)[77])
    with pytest.raises(
        UserError, match=r"^train.max_bad_records: 5: more records are damaged: .*t-0.tfrecord: record 0 at"
    ):
        open_all(tmp_path, max_bad=5)
    given = open_all(tmp_path, max_bad=6)
    good = [each for each in range(300) if each not in [*bad, 77]]
    assert numbers(given) == good
    assert given.count() == len(good) == 294
    epoch = np.concatenate(list(given.batches(Part(42)).take(7).as_numpy_iterator()))
    assert sorted(epoch.tolist()) == good


@pytest.mark.parametrize("first", [10, 17, 37])
def test_bytes_in_which_no_record_can_be_found_count_by_the_mean_of_a_record(tmp_path: Path, first: int) -> None:
    tfrecords(tmp_path, [40])
    path = tmp_path / "t-0.tfrecord"
    whole = bytearray(path.read_bytes())
    whole[NTH[first] : NTH[first + 3]] = bytes(NTH[first + 3] - NTH[first])
    path.write_bytes(whole)
    mean = (NTH[40] - NTH[first + 3] + NTH[first]) // 37
    count = (NTH[first + 3] - NTH[first]) // mean
    with pytest.raises(UserError, match=f"^train.max_bad_records: {count - 1}: more records are damaged"):
        open_all(tmp_path, max_bad=count - 1)
    given = open_all(tmp_path, max_bad=count)
    assert numbers(given) == [each for each in range(40) if not first <= each < first + 3]
    assert given.index.left_out == count
    more = f" and about {count - 1} more" if count > 1 else ""
    assert given.index.first_left_out == f"{path}: record {first} at byte {NTH[first]}{more}"


def test_a_file_within_a_damaged_record_is_not_read(tmp_path: Path) -> None:
    tfrecords(tmp_path, [30], name="inner")
    inner = (tmp_path / "inner").read_bytes()
    contents = [b"0:", b"1:" + inner + b"y", b"2:" + inner, b"3:"]
    with tf.io.TFRecordWriter(str(tmp_path / "t-0.tfrecord")) as file:
        for each in contents:
            file.write(each)
    at = [0, *np.cumsum([16 + len(each) for each in contents]).tolist()]
    damage_byte(tmp_path / "t-0.tfrecord", at[1] + 3)
    damage_byte(tmp_path / "t-0.tfrecord", at[2] + 3)
    given = open_all(tmp_path, max_bad=2)
    assert (numbers(given), given.index.left_out) == ([0, 3], 2)


def test_a_length_beyond_the_file_has_the_rest_of_it(tmp_path: Path) -> None:
    tfrecords(tmp_path, [40])
    path = tmp_path / "t-0.tfrecord"
    length = (2**64 - 20).to_bytes(8, "little")
    crc = scan._masked(~np.array([functools.reduce(scan._with_byte, length, 0xFFFFFFFF)], np.uint32)).tobytes()
    whole = path.read_bytes()
    path.write_bytes(whole[: NTH[30]] + length + crc + whole[NTH[30] + 12 :])
    with pytest.raises(UserError, match=f"^{path}: record 30 at byte {NTH[30]}: it is cut off; write the file again"):
        open_all(tmp_path)
    with pytest.raises(
        UserError, match=r"^train.max_bad_records: 1: more .*record 30 at byte \d+ and about \d more; wr"
    ):
        open_all(tmp_path, max_bad=1)


def test_damage_before_the_last_is_in_the_digest(tmp_path: Path) -> None:
    digests = []
    for name, more in [("a", b""), ("b", b""), ("c", b"z")]:
        (tmp_path / name).mkdir()
        with tf.io.TFRecordWriter(str(path := tmp_path / name / "t-0.tfrecord")) as file:
            for each in [b"1:", b"2:" + more, b"3:", b"4:"]:
                file.write(each)
        damage_byte(path, 18 * 2 + len(more))
        digests.append(open_all(tmp_path / name, max_bad=1).index.sha256)
    assert digests[0] == digests[1] != digests[2]


def test_a_file_of_damage_is_given_up_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tfrecords(tmp_path, [30])
    path = tmp_path / "t-0.tfrecord"
    for each in range(1, 30):
        damage_byte(path, starts(30)[each] + 12)
    read: list[int] = []
    original = checksums.first_bad

    def counted(name: str, compression: str, offset: int, count: int, on_read: Any) -> int | None:
        read.append(offset)
        return original(name, compression, offset, count, on_read)

    monkeypatch.setattr(checksums, "first_bad", counted)
    monkeypatch.setattr(kept, "_KEEP_SECONDS", 0.0)
    with pytest.raises(UserError, match=r"^train.max_bad_records: 2: more records are damaged: .*record 3 at byte"):
        open_all(tmp_path, max_bad=2)
    assert len(read) == 3
    assert open_all(tmp_path, max_bad=30).index.left_out == 29, "what was given up is not kept"


def test_a_kept_index_that_was_not_verified_is_made_again(tmp_path: Path) -> None:
    tfrecords(tmp_path, [40])
    damage_byte(tmp_path / "t-0.tfrecord", NTH[5] + 12)
    before = open_all(tmp_path)
    assert before.count() == 40
    after = open_all(tmp_path, max_bad=3)
    assert after.count() == 39
    assert after.index.sha256 == before.index.sha256, "so that a job may resume with more of them allowed"
