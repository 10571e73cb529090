"""`trainer.files` against a hand-written tf.data pipeline, and the first step of a resume.

    python -m bench.files [gigabytes]

Writes records of images of 64x64 to a temporary folder, which is removed afterwards. Both pipelines parse, decode and
batch the same records in the same process, in turns; a round's ratio is of its two rates.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.training.inputs.records.opened import opened
from trainer.training.inputs.records.reader import Records
from trainer.training.inputs.source import Part
from trainer.workloads.files import files

BATCH, FILES, SIDE, ROUNDS, SECONDS = 64, 32, 64, 9, 8.0
_FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def parse(record: Any) -> Any:
    example = tf.io.parse_single_example(record, _FEATURES)
    image = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), [SIDE, SIDE, 3])
    return tf.cast(image, tf.float32) / 255.0, example["label"]


def write(folder: Path, gigabytes: float) -> int:
    """Returns the number of records."""
    noise = np.random.default_rng(0).bytes(SIDE * SIDE * 3 + 4096)
    count = int(gigabytes * 1e9 / (SIDE * SIDE * 3 + 50))
    for file, numbers in enumerate(np.array_split(np.arange(count), FILES)):
        with tf.io.TFRecordWriter(str(folder / f"train-{file:03d}.tfrecord")) as writer:
            for number in numbers:
                begin = int(number) % 4096
                features = {
                    "image": tf.train.Feature(
                        bytes_list=tf.train.BytesList(value=[noise[begin : begin + SIDE * SIDE * 3]])
                    ),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(number)])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return count


def by_hand(folder: Path) -> Any:
    names = tf.data.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=True)
    records = names.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE).repeat()
    shuffled = records.shuffle(10_000).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return shuffled.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def rate(batches: Any, seconds: float) -> float:
    """Examples per second once the first batch is there."""
    iterator = iter(batches)
    next(iterator)
    begun, count = time.perf_counter(), 0
    while (spent := time.perf_counter() - begun) < seconds:
        next(iterator)
        count += BATCH
    return count / spent


def seconds_to_first(records: Records, start: int) -> float:
    begun = time.perf_counter()
    next(iter(records.batches(Part(BATCH, start=start))))
    return time.perf_counter() - begun


def main(gigabytes: float) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        print(f"{write(folder, gigabytes):,} records, {gigabytes:g} GB, {FILES} files", flush=True)

        def described() -> Records:
            workload = str(folder / "bench.py")
            return opened(files("*.tfrecord", parse), "data()", "train", workload=workload, model_dir=temporary)

        begun = time.perf_counter()
        records = described()
        print(f"index: {time.perf_counter() - begun:.2f} s", flush=True)
        begun = time.perf_counter()
        records = described()
        print(f"kept index: {time.perf_counter() - begun:.2f} s", flush=True)
        ratios = []
        for each in range(ROUNDS):
            pair: list[Callable[[], Any]] = [lambda: by_hand(folder), lambda: records.batches(Part(BATCH, seed=1))]
            found = [rate(made(), SECONDS) for made in (pair if each % 2 else reversed(pair))]
            hand, ours = found if each % 2 else reversed(found)
            ratios.append(ours / hand)
            print(f"by hand {hand:8,.0f}/s, files {ours:8,.0f}/s, ratio {ratios[-1]:.3f}", flush=True)
        print(f"ratio: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}", flush=True)
        steps = records.count() // BATCH
        for _ in range(3):
            first, late = (seconds_to_first(records, start) for start in (0, int(0.9 * steps)))
            print(f"first step: at 0 % {first:.2f} s, at 90 % {late:.2f} s", flush=True)


if __name__ == "__main__":
    main(float(*itertools.islice([*sys.argv[1:], "4"], 1)))
