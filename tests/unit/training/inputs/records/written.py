"""Files of numbered records for the tests of records; record n begins with its number."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.training.inputs.records.opened import opened
from trainer.training.inputs.records.reader import Records
from trainer.workloads.files import files

COUNTS = [100, 0, 57, 300]
"""Records of each file."""


def record(number: int) -> bytes:
    """Of 2 to 9,000 bytes, so that some files have several blocks."""
    return b"%d:" % number + b"x" * (number * 7919 % 9000)


def number(record: Any) -> Any:
    return tf.strings.to_number(tf.strings.split(record, ":")[0], tf.int64)


def tfrecords(folder: Path, counts: Sequence[int] = COUNTS, compression: str = "", name: str = "t-{}.tfrecord") -> None:
    first = 0
    for i, count in enumerate(counts):
        with tf.io.TFRecordWriter(str(folder / name.format(i)), compression or None) as file:
            for each in range(first, first + count):
                file.write(record(each))
        first += count


def lines(folder: Path, counts: Sequence[int] = COUNTS, compression: str = "", end: str = "\n") -> None:
    """Text whose last line has no end."""
    pack: Any = gzip.compress if compression else bytes
    first = 0
    for i, count in enumerate(counts):
        text = end.join(record(each).decode() for each in range(first, first + count)).encode()
        (folder / f"t-{i}.txt{'.gz' if compression else ''}").write_bytes(pack(text))
        first += count


def open_all(folder: Path, pattern: str | list[str] = "t-*", *, split: str = "train", **more: Any) -> Records:
    own = {name: more.pop(name) for name in ("max_bad", "report", "in_graphs") if name in more}
    given = files(pattern, more.pop("parse", number), **more)
    return opened(
        given, f"data({split!r})", split, workload=str(folder / "mine.py"), model_dir=str(folder / "run"), **own
    )


def starts(counts: int) -> list[int]:
    """Offsets of the records of one file, by the format's definition."""
    sizes = [16 + len(record(each)) for each in range(counts)]
    return [0, *np.cumsum(sizes).tolist()]


def numbers(given: Records) -> list[int]:
    found: list[int] = np.concatenate(list(given.evaluation(100).as_numpy_iterator())).tolist()
    return found


def damage_byte(path: Path, at: int) -> None:
    whole = bytearray(path.read_bytes())
    whole[at] ^= 0x40
    path.write_bytes(whole)
