"""Parquet files, which pyarrow reads: a package that the user installs, imported only here.

A block is a row group: the footer has their sizes, and nothing smaller can be read alone. A record is a row, given to
parse as a dict of tensors. Python reads them, so a ps-worker cannot.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.inputs.records import storage
from trainer.training.inputs.records.index import File, Index
from trainer.training.inputs.records.storage import Stat
from trainer.workloads.files import NO_PYARROW
from trainer.workloads.types import Tensor

Arrow: TypeAlias = Any
"""An object of pyarrow, which may not be installed."""
Array: TypeAlias = npt.NDArray[np.generic]
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
_TEXT_WIDTH = 48
"""Bytes of a text or binary value in Python; without its contents, which encodings hide."""
_GROUPS = 2
"""Row groups to keep in memory: windows that follow each other often share one."""


def index(name: str, stat: Stat, on_read: Callable[[int], None]) -> File:
    """The row groups of a file, as its footer has them; `on_read` is called with the number of bytes after each read.

    Raises:
        UserError: it cannot be read, or is not a Parquet file.
    """
    digest = hashlib.sha256()
    with storage.opened(name, on_read) as plain:
        end = plain.read(max(0, stat.size - 8), 8)
        if end[4:] != b"PAR1":
            raise UserError(f"{name}: is not a Parquet file, or is cut off: it does not end with PAR1; write it again")
        footer = min(stat.size, int.from_bytes(end[:4], "little") + 8)
        digest.update(plain.read(stat.size - footer, footer))
    file = _file(name)
    groups = [file.metadata.row_group(each) for each in range(file.metadata.num_row_groups)]
    kept = [number for number, group in enumerate(groups) if group.num_rows]
    schema = {field.name: str(field.type) for field in file.schema_arrow}
    nulls = set()
    sizes = []
    for number in kept:
        columns = [groups[number].column(each) for each in range(groups[number].num_columns)]
        sizes.append(sum(max(each.total_uncompressed_size, each.num_values * _width(each)) for each in columns))
        nulls |= {
            _field(each.path_in_schema, schema)
            for each in columns
            if each.statistics is not None and each.statistics.has_null_count and each.statistics.null_count
        }
    counts = [groups[number].num_rows for number in kept]
    offsets, rows, lengths = (np.array(each, np.int64) for each in (kept, counts, sizes))
    text = json.dumps({"types": schema, "nulls": sorted(nulls)})
    return File(name, stat, "", digest.hexdigest(), offsets, rows, lengths, schema=text)


def _field(path: str, schema: Collection[str]) -> str:
    """The field that a column belongs to; names of both may have dots."""
    while path not in schema and "." in path:
        path = path.rpartition(".")[0]
    return path


def _width(column: Arrow) -> int:
    return _WIDTHS.get(column.physical_type, _TEXT_WIDTH)


def _pyarrow() -> Arrow:
    try:
        importlib.import_module("pyarrow.parquet")
        return importlib.import_module("pyarrow")
    except ImportError:
        raise UserError(NO_PYARROW) from None


def _file(name: str) -> Arrow:
    arrow = _pyarrow()
    try:
        return arrow.parquet.ParquetFile(name)
    except (OSError, arrow.ArrowException) as error:
        raise _damaged(name, error) from None


def _damaged(name: str, error: Exception) -> UserError:
    return UserError(f"{name}: cannot be read as Parquet: {' '.join(str(error).split())[:200]}; write the file again")


@dataclass(frozen=True)
class Rows:
    """Reads rows as tensors by column."""

    index: Index
    specs: dict[str, tf.TensorSpec]
    """The type of each column in one row."""

    def read(self, block: Tensor, skip: Tensor, take: Tensor) -> dict[str, Tensor]:
        """The rows of these parts of blocks, one after another."""
        columns = tf.numpy_function(self._read, (block, skip, take), [spec.dtype for spec in self.specs.values()])
        rows = dict(zip(self.specs, columns, strict=True))
        return {name: tf.ensure_shape(rows[name], [None, *spec.shape]) for name, spec in self.specs.items()}

    def _read(self, block: Array, skip: Array, take: Array) -> list[Array]:
        parts = [
            [column[begin : begin + count] for column in self._group(int(each))]
            for each, begin, count in zip(block, skip, take, strict=True)
        ]
        return [np.concatenate(each) for each in zip(*parts, strict=True)]

    @cached_property
    def _group(self) -> Callable[[int], list[Array]]:
        return lru_cache(_GROUPS)(self._of_block)

    @cached_property
    def _blocks(self) -> list[tuple[File, int]]:
        return [(file, int(group)) for file in self.index.files for group in file.offsets]

    def _of_block(self, block: int) -> list[Array]:
        """The columns of a row group.

        Raises:
            UserError: names what is damaged, or the column that lacks values.
        """
        file, group = self._blocks[block]
        try:
            table = _file(file.name).read_row_group(group, columns=list(self.specs))
            return [_column(table.column(name), name, spec, file.name) for name, spec in self.specs.items()]
        except (OSError, _pyarrow().ArrowException) as error:
            raise _damaged(f"{file.name}: row group {group}", error) from None


def _column(chunks: Arrow, name: str, spec: tf.TensorSpec, file: str) -> Array:
    types, column = _pyarrow().types, chunks.combine_chunks()
    if column.null_count:
        raise _null(file, name)
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    while types.is_fixed_size_list(column.type):
        column = column.flatten()
        if column.null_count:
            raise _null(file, name)
    if spec.dtype == tf.string:
        column = column.cast(_pyarrow().large_binary())
    values = column.to_numpy(zero_copy_only=False)
    shaped: Array = values.reshape(-1, *spec.shape)
    return shaped


def _null(file: str, column: str) -> UserError:
    return UserError(
        f"{file}: column {column!r} has rows without a value (null); write the file with a value in each, or leave the "
        "column out: columns=[...]"
    )


def rows(index: Index, columns: Sequence[str] | None, what: str) -> Rows:
    """What reads these columns of the files; by default all.

    Raises:
        UserError: a column is missing, has no values in places, has a type that is no tensor's, or is another one in
            some file.
    """
    first, *others = (file for file in index.files if file.records)  # pandas writes other types where it has no rows
    known = _file(first.name).schema_arrow
    wanted = list(known.names if columns is None else columns)
    types = json.loads(first.schema)["types"]
    for name in wanted:
        if name not in types:
            raise UserError(f"workload: {what}: {first.name} has no column {name!r}; it has {', '.join(types)}")
    specs = {name: _spec(known.field(name).type) for name in wanted}
    # Before values that are missing: an empty list counts as one.
    if odd := next((name for name, spec in specs.items() if spec is None), None):
        raise UserError(
            f"workload: {what}: {first.name}: column {odd!r} is {types[odd]}; parse takes numbers, bools, text, bytes "
            "and fixed_size_list of these: convert it, or leave it out: columns=[...]"
        )
    for file in (first, *others):
        schema = json.loads(file.schema)
        for name in wanted:
            if (kind := schema["types"].get(name)) != types[name]:
                raise UserError(
                    f"workload: {what}: column {name!r} is {types[name]} in {first.name}, and {kind or 'missing'} in "
                    f"{file.name}; make them alike"
                )
            if name in schema["nulls"]:
                raise _null(file.name, name)
    return Rows(index, specs)


def _spec(kind: Arrow) -> tf.TensorSpec | None:
    types, shape = _pyarrow().types, []
    if types.is_dictionary(kind):
        kind = kind.value_type
    while types.is_fixed_size_list(kind):
        shape.append(kind.list_size)
        kind = kind.value_type
    texts = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    if str(kind) in texts or types.is_fixed_size_binary(kind):
        return tf.TensorSpec(shape, tf.string)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return tf.TensorSpec(shape, tf.as_dtype(kind.to_pandas_dtype()))
    return None
