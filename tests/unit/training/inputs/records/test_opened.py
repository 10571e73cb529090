"""What `trainer.files` is given: patterns, formats and parse functions; mistakes are named."""

import os
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.unit.training.inputs.records.written import number, numbers, open_all, tfrecords
from trainer.job.errors import UserError

# Each: patterns, other arguments, and the message.
MISTAKES: list[tuple[Any, dict[str, Any], str]] = [
    (
        "v-*.tfrecord",
        {},
        "trainer.files('v-*.tfrecord'): nothing matches; {folder} has a.array_record, odd.bin, t-0.tfrecord",
    ),
    ("no/x*", {}, "trainer.files('no/x*'): nothing matches; there is no folder {folder}/no"),
    (
        "s3://mine/x*",
        {},
        "trainer.files('s3://mine/x*'): TensorFlow reads files and gs://, not s3://; mount the bucket",
    ),
    (
        "odd.bin",
        {},
        "workload: data('train'): {folder}/odd.bin: its name does not show its format; give format=, one of",
    ),
    (["t-*", "odd.bin"], {}, "workload: data('train'): {folder}/t-0.tfrecord is of format tfrecord, {folder}/odd.bin"),
    (
        "t-*",
        {"format": "arrow"},
        "workload: data('train'): trainer.files: format: 'arrow': must be one of 'tfrecord', 't",
    ),
    (
        "t-*",
        {"shuffle": "yes"},
        "workload: data('train'): trainer.files: shuffle: 'yes': must be True, False or a numb",
    ),
    ("t-*", {"shuffle": 0}, "workload: data('train'): trainer.files: shuffle: 0: must be True, False or a number"),
    ("t-*", {"parse": None}, "workload: data('train'): trainer.files: parse must be a function of one record, is None"),
    ([], {}, "workload: data('train'): trainer.files: there are no patterns; name files"),
    (
        "*.array_record",
        {},
        "workload: data('train'): trainer.files: ArrayRecord files are not read; convert them to TFRecords, or return",
    ),
    ("t-1.*", {}, "workload: data('train'): the 1 files of trainer.files('t-1.*',) hold no records"),
]


@pytest.mark.parametrize(("patterns", "more", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_named(tmp_path: Path, patterns: Any, more: dict[str, Any], message: str) -> None:
    tfrecords(tmp_path, [3, 0])
    for name in ("odd.bin", "a.array_record"):
        (tmp_path / name).write_bytes(b"?")
    with pytest.raises(UserError) as caught:
        open_all(tmp_path, patterns, **more)
    assert str(caught.value).startswith(message.format(folder=tmp_path))


def test_brackets_in_names_match_themselves(tmp_path: Path) -> None:
    folder = tmp_path / "run[1]"
    folder.mkdir()
    (tmp_path / "run1").mkdir()
    tfrecords(folder, [3, 4], name="t[{}].tfrecord")
    tfrecords(tmp_path / "run1", [9])
    assert open_all(folder, "t*").count() == 7
    assert open_all(folder, "t[[]0]*").count() == 3
    assert open_all(tmp_path, str(folder / "*.tfrecord")).count() == 7
    assert open_all(tmp_path, str(folder / "t[1].tfrecord")).count() == 4


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    tfrecords(tmp_path, [3])
    os.rename(tmp_path / "t-0.tfrecord", os.fsencode(tmp_path) + b"/t-\xff.tfrecord")  # noqa: PTH104
    with pytest.raises(UserError, match=r"/t-\\udcff.tfrecord': its name is not UTF-8; rename it$"):
        open_all(tmp_path)


def test_a_file_or_folder_that_may_not_be_read_is_named(tmp_path: Path, unprivileged: None) -> None:
    tfrecords(tmp_path, [3])
    (tmp_path / "t-0.tfrecord").chmod(0)
    with pytest.raises(UserError, match=f"^{tmp_path}/t-0.tfrecord: cannot be read: Permission denied"):
        open_all(tmp_path)


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "t-0.tfrecord").symlink_to("gone")
    with pytest.raises(UserError, match=f"^{tmp_path}/t-0.tfrecord: cannot be read: No such file or directory$"):
        open_all(tmp_path)
    os.mkfifo(tmp_path / "u-0.tfrecord")
    with pytest.raises(UserError, match=f"^{tmp_path}/u-0.tfrecord: is not a file$"):
        open_all(tmp_path, "u-*")
    (tmp_path / "v.tfrecord").symlink_to("v.tfrecord")
    with pytest.raises(UserError, match=f"^{tmp_path}/v.tfrecord: cannot be read: Too many levels of symbolic links$"):
        open_all(tmp_path, "v*")


@pytest.mark.parametrize("name", ["a.tfrecord", "b.TFRecords", "c.tfrecord-00000-of-00010", "d.tfrecord.gz", "e.tfrec"])
def test_a_format_follows_from_the_name(tmp_path: Path, name: str) -> None:
    tfrecords(tmp_path, [7], "GZIP" if name.endswith(".gz") else "", name)
    assert numbers(open_all(tmp_path, name)) == list(range(7))


# Each: what parse does, and the message.
PARSES: list[tuple[Any, str]] = [
    (lambda record: None, "workload: data('train'): parse(record) gives nothing; it must give x, (x, y) or (x, y, sam"),
    (lambda record: (record,) * 4, "workload: data('train'): parse(record) gives a tuple of 4; it must give x, (x, y)"),
    (lambda record: tf.io.decode_raw(record, 7), "mine.py: data('train'): parse(record): "),
    (lambda record: record.missing, "mine.py: data('train'): parse(record): AttributeError: "),
]


@pytest.mark.parametrize(("parse", "message"), PARSES, ids=range(len(PARSES)))
def test_a_parse_that_fails_or_gives_no_example_is_named(tmp_path: Path, parse: Any, message: str) -> None:
    tfrecords(tmp_path, [3])
    with pytest.raises(UserError) as caught:
        open_all(tmp_path, parse=parse)
    assert message in str(caught.value)


def test_patterns_are_read_in_their_order_and_each_file_once(tmp_path: Path) -> None:
    tfrecords(tmp_path, [3, 4], name="{}.rec")
    given = open_all(tmp_path, ["1.rec", str(tmp_path / "*.rec")], format="tfrecord", parse=number)
    assert numbers(given) == [3, 4, 5, 6, 0, 1, 2]
