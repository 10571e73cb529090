"""Compares the data of TFRecords with their checksums, by TensorFlow's reader."""

from __future__ import annotations

import re
from collections.abc import Callable

import tensorflow as tf

from trainer.workloads.types import Dataset, Tensor

REASON = "its data does not match the checksum"
READ_BUFFER = 1 << 18
_AT_BYTE = re.compile(r"(?:corrupted|truncated) record at (\d+)")  # tensorflow/core/lib/io/record_reader.cc


def tfrecords(name: Tensor, compression: Tensor, offset: Tensor) -> Dataset:
    """The records of a file from an offset on; only for functions of datasets: it cannot be at the top itself."""
    # tf.data.TFRecordDataset has no byte_offsets.
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=name, compression_type=compression, buffer_size=READ_BUFFER, byte_offsets=offset
    )
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))


def first_bad(
    name: str, compression: str, offset: int, count: int, on_read: Callable[[int], None] = lambda _: None
) -> int | None:
    """Offset of the first of these records that is damaged, or of its data; None if there is none.

    Args:
        on_read: called with the number of bytes of some that were read.
    """

    @tf.autograph.experimental.do_not_convert
    def read(begin: Tensor) -> Dataset:
        records = tfrecords(tf.constant(name), tf.constant(compression), begin).take(count)
        return records.map(tf.strings.length).batch(1024)

    sizes = tf.data.Dataset.from_tensors(tf.constant(offset, tf.int64)).flat_map(read)
    try:
        for each in sizes.as_numpy_iterator():
            on_read(int(each.sum()))
    except tf.errors.DataLossError as error:
        return at_byte(error)
    return None


def at_byte(error: tf.errors.DataLossError) -> int:
    """The offset that TensorFlow's message names."""
    match = _AT_BYTE.search(str(error))
    return int(match[1]) if match else 0
