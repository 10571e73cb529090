"""From the description that a workload gives to the records of its files."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.inputs.data_value import NAMES
from trainer.training.inputs.records import kept, parquet, storage
from trainer.training.inputs.records.reader import Records
from trainer.training.runtime.user_code import calling
from trainer.workloads.files import NO_ARRAY_RECORDS, NOT_IN_GRAPHS, SUFFIXES, Files, Parse, format_of
from trainer.workloads.types import Tensor

OPENED: list[Records] = []
"""All of this process: an error of TensorFlow names no file."""


def opened(
    files: Files,
    what: str,
    split: str,
    *,
    workload: str,
    model_dir: str,
    max_bad: int = 0,
    report: kept.Report = lambda *_: None,
    in_graphs: bool = False,
) -> Records:
    """The records of the files that a workload names.

    Args:
        what: the call that gave them, for messages.
        workload: its file, in whose folder relative patterns begin.
        max_bad: how many damaged records may be left out.
        report: called while the index is made.
        in_graphs: whether they are read in graphs that have no Python.

    Raises:
        UserError: there are no such files, they cannot be read, are damaged or have no records.
    """
    if not callable(files.parse):
        raise UserError(f"workload: {what}: trainer.files: parse must be a function of one record, is {files.parse!r}")
    if not files.patterns:
        raise UserError(f"workload: {what}: trainer.files: there are no patterns; name files")
    if not isinstance(files.shuffle, bool) and (not isinstance(files.shuffle, int) or files.shuffle < 1):
        raise UserError(
            f"workload: {what}: trainer.files: shuffle: {files.shuffle!r}: must be True, False or a number of records"
        )
    folder = Path(workload).parent
    names = list(dict.fromkeys(name for each in files.patterns for name in storage.matching(each, folder)))
    format = _format(files, names, what)
    if files.columns is not None and format != "parquet":
        raise UserError(f"workload: {what}: trainer.files: columns: files of {format} have none; remove it")
    if format == "parquet" and in_graphs:
        raise UserError(f"workload: {what}: {NOT_IN_GRAPHS}")
    if format == "parquet" and any(map(storage.is_remote, names)):
        raise UserError(f"workload: {what}: trainer.files: Parquet is read from folders; mount the bucket as one")
    index = kept.index(names, format, split, model_dir, max_bad, report)
    if not index.count:
        raise UserError(f"workload: {what}: the {len(names)} files of trainer.files{files.patterns} hold no records")
    window = None if isinstance(files.shuffle, bool) else files.shuffle
    rows = parquet.rows(index, files.columns, what) if format == "parquet" else None
    parse = _traced(files.parse, rows.specs if rows else tf.TensorSpec([], tf.string), what, workload)
    OPENED.append(Records(index, parse, what, bool(files.shuffle), window, rows))
    return OPENED[-1]


def _traced(parse: Parse, record: Tensor, what: str, workload: str) -> Parse:
    """Makes parse a function of TensorFlow. AutoGraph converts it, as functions of Dataset.map, also within those that
    are not.

    Raises:
        UserError: it fails, or gives no example.
    """
    traced = tf.function(parse)
    with calling(workload, f"{what}: parse(record)"):
        gives = traced.get_concrete_function(record).structured_outputs
    if gives is None or (isinstance(gives, tuple) and not 1 <= len(gives) <= len(NAMES)):
        result = "nothing" if gives is None else f"a tuple of {len(gives)}"
        raise UserError(
            f"workload: {what}: parse(record) gives {result}; it must give x, (x, y) or (x, y, sample_weight): several "
            "inputs go into a tuple or dict inside"
        )
    made: Parse = traced
    return made


def _format(files: Files, names: list[str], what: str) -> str:
    known = ", ".join(repr(each) for each in SUFFIXES if each != "arrayrecord")
    if files.format is not None:
        if repr(files.format) not in known:
            raise UserError(f"workload: {what}: trainer.files: format: {files.format!r}: must be one of {known}")
        return files.format
    formats = {name: format_of(name.rpartition("/")[2]) for name in names}
    first = names[0]
    if formats[first] is None:
        raise UserError(f"workload: {what}: {first}: its name does not show its format; give format=, one of {known}")
    if formats[first] == "arrayrecord":
        raise UserError(f"workload: {what}: {NO_ARRAY_RECORDS}")
    if other := next((name for name in names if formats[name] != formats[first]), None):
        raise UserError(
            f"workload: {what}: {first} is of format {formats[first]}, {other} seems to be of another; give narrower "
            "patterns, or format="
        )
    return formats[first] or ""
