"""The process that reads the file of `init_from`, which may come from anywhere.

It has none of the job's secrets in its environment, loads no plugins, and has little memory beyond what the weights
need. It tells what the file declares, is told which of that fits the model, and sends only those values.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import resource
import stat
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import numpy as np

from trainer import host
from trainer.job.errors import UserError
from trainer.model_dir.init_files import OLD_H5, Source, source
from trainer.workloads.types import Tensor

if TYPE_CHECKING:
    from trainer.model_dir.arrays import Array
    from trainer.training.weights.weight_names import Name  # imports Keras

WEIGHTS = "model.weights.h5"
"""The file of weights in a .keras archive."""
MOST_VARIABLES = 1_000_000
SPARE_BYTES = 1 << 30
"""Memory for all else than values."""
_INFLATED = 100
"""How much longer than in the archive a compressed file of weights may be: those of models shrink by some tenths."""
_SMALL = 64 << 20
_LOCAL_HEADER = 30
"""Bytes of the header of an entry of a zip file. The last are the lengths of name and extra field, which follow."""
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


@dataclass
class Declared:
    """A variable of the file: what the file says of it."""

    name: Name
    shape: tuple[int, ...]
    dtype: str
    """As NumPy or ml_dtypes name it."""
    source: Tensor = field(default=None, compare=False)
    """From which its value is read."""


Values: TypeAlias = "Callable[[Declared], Array]"
"""Reads the value of one of the variables that a file declares."""


def main() -> None:
    """Reads the file that the first word names; speaks by stdin and stdout with init_from.py."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a library may print
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with contextlib.ExitStack() as stack:
            declared, values = opened(source(sys.argv[1]), stack)
            _say(answer, {"variables": [[each.name, each.shape, each.dtype] for each in declared]})
            wanted = [declared[number] for number in json.loads(sys.stdin.buffer.readline())]
            _limit_memory(max((_size(each) for each in wanted), default=0))
            for each in wanted:
                answer.write(values(each).reshape(-1).view(np.uint8).data)
            answer.flush()
    except UserError as error:
        _say(answer, {"refused": str(error)})
    except Exception as error:
        _say(answer, {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"})


def _say(answer: BinaryIO, words: Mapping[str, object]) -> None:
    answer.write(json.dumps(words).encode() + b"\n")
    answer.flush()


def _size(variable: Declared) -> int:
    return int(np.prod(variable.shape, dtype=object)) * dtype_of(variable.dtype).itemsize


def dtype_of(name: str) -> np.dtype[np.generic]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


def _limit_memory(largest: int) -> None:
    """To what the process has now, some copies of the largest value, and a little more."""
    if now := host.address_space():
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (now + 3 * largest + SPARE_BYTES, hard))


def opened(there: Source, stack: contextlib.ExitStack) -> tuple[list[Declared], Values]:
    """What the file declares, and the function that reads the value of one of these.

    Raises:
        UserError: it refers to other files, or is damaged in a way that is named.
        Exception: it cannot be read.
    """
    if there.kind == "saved_model":
        return _saved_model(there)
    file = stack.enter_context(there.files[0].open("rb"))
    _limit_memory(0)
    return _h5(stack, _entry(file, str(there.files[0])) if there.kind == "keras" else file, str(there.files[0]))


# A .keras archive. --------------------------------------------------------------------------------


def _entry(file: BinaryIO, path: str) -> BinaryIO:
    """The file of weights in an archive."""
    with zipfile.ZipFile(file) as archive:
        entry = archive.getinfo(WEIGHTS)
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise UserError(f"init_from: {path}: its {WEIGHTS} is no regular file")
        if entry.compress_type == zipfile.ZIP_STORED and not entry.flag_bits & 1:
            file.seek(entry.header_offset + _LOCAL_HEADER - 4)
            lengths = file.read(4)
            begin = entry.header_offset + _LOCAL_HEADER + sum(np.frombuffer(lengths, "<u2").tolist())
            return io.BufferedReader(_Part(file, begin, entry.file_size))
        most = _SMALL + _INFLATED * entry.compress_size
        with archive.open(entry) as inflated:
            body = inflated.read(most + 1)
        if len(body) > most:
            raise UserError(
                f"init_from: {path}: its {WEIGHTS} is more than {_INFLATED} times as long as in the archive"
            )
        return io.BytesIO(body)


class _Part(io.RawIOBase):
    """A part of a file, as a file."""

    def __init__(self, file: BinaryIO, begin: int, size: int) -> None:
        self._file, self._begin, self._size, self._at = file, begin, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Tensor) -> int:
        self._file.seek(self._begin + self._at)
        part = self._file.read(max(0, min(len(buffer), self._size - self._at)))
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


# HDF5. --------------------------------------------------------------------------------------------


def _h5(stack: contextlib.ExitStack, file: BinaryIO, path: str) -> tuple[list[Declared], Values]:
    import h5py

    archive = stack.enter_context(h5py.File(file, "r"))
    groups = dict[str, tuple[str | None, dict[str, Tensor]]]()

    def refuse(where: str, why: str) -> UserError:
        return UserError(f"init_from: {path}: {where or '/'} {why}")

    seen = set[int]()

    def visit(group: Tensor, where: str, depth: int) -> None:
        seen.add(h5py.h5o.get_info(group.id).addr)  # several links may lead to one group
        if depth > 200:
            raise refuse(where, "has too many groups in each other")
        found = dict[str, Tensor]()
        for name in group:
            here = f"{where}/{name}" if where else name
            if len(groups) + len(found) > MOST_VARIABLES:
                raise refuse("", f"has more than {MOST_VARIABLES:,} variables")
            try:
                link = group.get(name, getlink=True)
            except TypeError:  # one that a user has defined
                link = None
            if not isinstance(link, h5py.HardLink):
                raise refuse(here, "is a link to elsewhere, which is not followed")
            item = group[name]
            if isinstance(item, h5py.Group) and h5py.h5o.get_info(item.id).addr not in seen:
                visit(item, here, depth + 1)
            elif isinstance(item, h5py.Dataset):
                _require_own(item, functools.partial(refuse, here))
                found[name] = item
        if where.rpartition("/")[2] == "vars":
            groups[where.rpartition("/")[0]] = (_text(group, "name"), found)

    visit(archive, "", 0)
    if not groups and {"layer_names", "model_weights"} & {*archive.attrs, *archive}:
        raise UserError(f"init_from: {path}: an .h5 file {OLD_H5}")
    kept = {place: group for place, group in groups.items() if place.partition("/")[0] != "optimizer"}
    return [Declared(name, item.shape, _dtype(item), item) for name, item in named(kept)], _of_dataset


def _require_own(item: Tensor, refuse: Callable[[str], UserError]) -> None:
    """Checks that the values of a dataset are in this file, and that no more is read than the dataset has.

    Raises:
        UserError: they are not.
    """
    if item.external:
        raise refuse("refers to another file, which is not read")
    if item.is_virtual:
        raise refuse("refers to other datasets, which are not read")
    if item.dtype.kind not in "fiubcV" or item.dtype.hasobject or item.shape is None:
        raise refuse(f"has values that are no numbers: {item.dtype}")
    if item.chunks and int(np.prod(item.chunks, dtype=object)) * item.dtype.itemsize > max(_SMALL, 2 * item.nbytes):
        raise refuse("is stored in pieces that are larger than itself")


def _text(item: Tensor, name: str) -> str | None:
    """An attribute that is a short text."""
    if name not in item.attrs:
        return None
    attribute = item.attrs.get_id(name)
    return str(item.attrs[name]) if attribute.shape == () else None


def _dtype(item: Tensor) -> str:
    bits = item.dtype.kind == "V"
    return "bfloat16" if bits and _text(item, "dtype") == "bfloat16" else str(item.dtype.newbyteorder("="))


def _of_dataset(variable: Declared) -> Array:
    array = np.asarray(variable.source)
    return array.astype(array.dtype.newbyteorder("="), order="C", copy=False)


def named(groups: Mapping[str, tuple[str | None, Mapping[str, Tensor]]]) -> Iterator[tuple[Name, Tensor]]:
    """The variables in Keras' groups of weights, by the names of their layers.

    The group of a layer in a list, as in a Functional model, is called after the layer's class, and has its name as an
    attribute; that of a layer in an attribute is called after the attribute. Lists have no group.
    """
    for path in sorted(groups, key=natural):
        parts = path.split("/") if path else []
        names: list[str] = []
        parent = ""
        for part in parts:
            here = f"{parent}/{part}" if parent else part
            if here in groups:
                name = groups[here][0] if parent and parent not in groups else None
                names.append(str(name or part))
            parent = here
        for key in sorted(groups[path][1], key=natural):
            yield (*names, key), groups[path][1][key]


def natural(path: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path)]


# A SavedModel. ------------------------------------------------------------------------------------


def _saved_model(there: Source) -> tuple[list[Declared], Values]:
    import tensorflow as tf

    from trainer.training.private import tensorflow_private

    _limit_memory(0)
    reader = tf.train.load_checkpoint(str(there.folder / "variables" / "variables"))
    names = tensorflow_private.names_in_graph(reader.get_tensor(_GRAPH))
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    # Keras lists all variables a second time, in no order, as _all_variables (keras/src/export/saved_model.py).
    listed = [key for key in names if key.startswith("variables/")] or list(names)
    numeric = [
        key for key in sorted(listed, key=natural) if key in shapes and dtypes[key] not in (tf.string, tf.variant)
    ]
    declared = [Declared(tuple(names[key].split("/")), tuple(shapes[key]), dtypes[key].name, key) for key in numeric]
    return declared, lambda variable: np.asarray(reader.get_tensor(variable.source))
