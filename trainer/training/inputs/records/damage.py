"""Names the file and the record behind an error of TensorFlow while records are read."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.inputs.records import checksums, scan, storage
from trainer.training.inputs.records.index import File, damaged
from trainer.training.inputs.records.opened import OPENED
from trainer.training.inputs.records.reader import OTHER_FILE, Records

# fixed_length_record_dataset_op.cc and posix/error.cc
_OTHER_FILES = (f"[{OTHER_FILE}] [{{}}]", 'input file "{}" has body length', "{}; No such file or directory")


def named(error: tf.errors.OpError) -> str | None:
    """What is wrong with a file, in one line; None if nothing is."""
    try:
        for records in OPENED:
            records.require_unchanged()
    except UserError as changed:
        return str(changed)
    names, text = (file.name for records in OPENED for file in records.index.files), str(error)
    if other := next((name for name in names if any(each.format(name) in text for each in _OTHER_FILES)), None):
        return f"{other}: a ps-worker has another file than the chief, or none; every task must see the same files"
    if not isinstance(error, tf.errors.DataLossError):
        return None
    offset = checksums.at_byte(error)
    return next(
        (line for records in OPENED for file in records.index.files if (line := _of(records, file, offset))), None
    )


def _of(records: Records, file: File, offset: int) -> str | None:
    """The damaged record of this file whose data, or which itself, is at the offset; None if that one is whole."""
    if records.index.format != "tfrecord" or not file.records:
        return None
    block = int(np.searchsorted(file.offsets, offset, "right")) - 1
    begin = int(file.offsets[block])
    if offset > begin + int(file.bytes[block]):
        return None
    if checksums.first_bad(file.name, file.compression, begin, int(file.counts[block])) != offset:
        return None
    with storage.opened(file.name) as plain:
        contents = scan.Inflated(plain, file.compression) if file.compression else plain
        starts = scan.scan(contents, "tfrecord").starts
    record = int(np.searchsorted(starts, offset, "right")) - 1
    return damaged(file.name, record, int(starts[record]), checksums.REASON, file.compression)
