"""The file of a checkpoint's arrays: an .npz as numpy.load reads it, written and read in one pass, with its SHA-256.

One array is in memory at a time. Its bytes are hashed in a second thread while the next ones are written or read.
NumPy is imported late, see checkpoint.py.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tokenize
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from trainer.model_dir.regular import regular

if TYPE_CHECKING:
    import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[Any]"
CHUNK = 4 << 20
"""Bytes of an array that are hashed, written or read at once."""
_INLINE = 1 << 16
"""Fewer bytes than these are hashed in the same thread: to hand them to another would take longer."""
LARGE = 1 << 26
"""Arrays of at least this many bytes share one piece of memory, if the reader allows it."""
_ALIGNMENT = 64
"""Alignment, in bytes, of an array that TensorFlow takes without a copy (EIGEN_MAX_ALIGN_BYTES)."""
_LOCAL_HEADER = struct.Struct("<26xHH")
"""The header of an entry of a zip file: what it reads are the lengths of the entry's name and extra field, which
follow."""
_UNREADABLE = (
    zipfile.BadZipFile, ValueError, struct.error, NotImplementedError, EOFError, OSError, SyntaxError, OverflowError,
    tokenize.TokenError,
)  # fmt: skip
"""Exceptions that zipfile and NumPy raise for a damaged file."""


class DamagedError(Exception):
    """A file is not as it was written."""

    def __init__(self, *, late: bool) -> None:
        super().__init__()
        self.late = late
        """Whether the damage showed only after some arrays of the file had been yielded."""


class _Hash:
    """Computes a SHA-256 in a thread."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1, "sha256")
        self._last: Future[None] | None = None

    def __enter__(self) -> _Hash:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def add(self, part: memoryview | bytes) -> None:
        """Adds bytes, which must not change before the next call."""
        self.wait()
        if len(part) < _INLINE:
            self._sha.update(part)
        else:
            self._last = self._thread.submit(self._sha.update, part)

    def wait(self) -> None:
        if self._last is not None:
            self._last.result()
            self._last = None

    def digest(self) -> str:
        self.wait()
        return self._sha.hexdigest()


# Writing. ------------------------------------------------------------------------------------------


class _Writer:
    """A file without seek: zipfile then writes an entry's checksum behind it."""

    def __init__(self, file: BinaryIO, sha: _Hash) -> None:
        self._file, self._sha = file, sha

    def write(self, part: memoryview | bytes) -> int:
        self._sha.add(part)
        self._file.write(part)
        self._sha.wait()
        return len(part)

    def flush(self) -> None:
        self._file.flush()


def write(file: BinaryIO, arrays: Iterable[tuple[str, Array]]) -> str:
    """Writes arrays by name, each before the next is asked for; returns the SHA-256 of the file."""
    with _Hash() as sha:
        with zipfile.ZipFile(_Writer(file, sha), "w") as archive:  # type: ignore[call-overload]
            for name, array in arrays:
                _write_one(archive, name, array)
                del array  # before the next one is made
        return sha.digest()


def _write_one(archive: zipfile.ZipFile, name: str, value: Array) -> None:
    import numpy as np

    array = np.asarray(value, order="C")
    with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
        np.lib.format.write_array_header_1_0(entry, np.lib.format.header_data_from_array_1_0(array))
        flat = array.reshape(-1).view(np.uint8)
        for i in range(0, len(flat), CHUNK):
            entry.write(flat[i : i + CHUNK].data)


# Reading. ------------------------------------------------------------------------------------------


class _Reader:
    """Reads a file from its beginning to its end."""

    def __init__(self, file: FileIO, sha: _Hash) -> None:
        self._file, self._sha = file, sha
        self.at = 0

    def read(self, count: int) -> bytes:
        part = self._file.read(count)
        self._sha.add(part)
        self.at += len(part)
        return part

    def left(self) -> int:
        """Bytes of the file that were not read yet."""
        return os.fstat(self._file.fileno()).st_size - self.at

    def fill(self, flat: memoryview) -> None:
        done = 0
        while done < len(flat):
            count = self._file.readinto(flat[done : done + CHUNK])
            if not count:
                raise EOFError
            self._sha.add(flat[done : done + count])
            done += count
        self._sha.wait()  # the caller may change the array
        self.at += done

    def skip_to(self, offset: int) -> None:
        if offset < self.at:
            raise ValueError("entries overlap")
        while self.at < offset and self.read(min(CHUNK, offset - self.at)):
            pass

    def rest(self) -> None:
        while self.read(CHUNK):
            pass


def read(path: Path, sha256: object, *, reuse: bool = False) -> Iterator[tuple[str, Array]]:
    """Yields the arrays of a file in their order. They are good only if no error follows the last one.

    Args:
        reuse: an array of at least LARGE bytes may lose its values when the next one is asked for. New memory takes
            longer than the copy into it.

    Raises:
        DamagedError: the file's SHA-256 is another one, or it cannot be read.
    """
    late = False
    try:
        with open(path, "rb", buffering=0, opener=regular) as file, _Hash() as sha:
            reader, memory = _Reader(file, sha), _Memory(reuse=reuse)
            for entry in _entries(file):
                array = _read_one(reader, memory, entry)
                late = True
                yield entry.filename.removesuffix(".npy"), array
                del array  # before the next one is made
            reader.rest()
            if sha.digest() != sha256:
                raise DamagedError(late=late)
    except _UNREADABLE as error:
        raise DamagedError(late=late) from error


def _entries(file: FileIO) -> list[zipfile.ZipInfo]:
    with zipfile.ZipFile(file) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    file.seek(0)
    return entries


class _Memory:
    """Memory for arrays, aligned. Large ones get the same if they may."""

    def __init__(self, *, reuse: bool) -> None:
        self._reuse = reuse
        self._large: Array | None = None

    def of(self, size: int) -> Array:
        if not self._reuse or size < LARGE:
            return aligned(size)
        if self._large is None or len(self._large) < size:
            self._large = None  # before the new one is there
            self._large = aligned(size)
        return self._large[:size]


def aligned(size: int) -> Array:
    """This many bytes, without values yet, which TensorFlow takes without a copy."""
    import numpy as np

    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size]


def _read_one(reader: _Reader, memory: _Memory, entry: zipfile.ZipInfo) -> Array:
    import numpy as np

    reader.skip_to(entry.header_offset)
    reader.read(sum(_LOCAL_HEADER.unpack(reader.read(_LOCAL_HEADER.size))))
    begin = reader.at
    version = np.lib.format.read_magic(reader)  # type: ignore[arg-type]
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read_header or entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError("not an entry of trainer's")
    shape, fortran, dtype = read_header[version](reader)  # type: ignore[arg-type]
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if dtype.hasobject or count * dtype.itemsize != entry.file_size - (reader.at - begin):
        raise ValueError("the entry has another length")
    if count * dtype.itemsize > reader.left():  # before the memory for it is taken
        raise EOFError
    flat = memory.of(count * dtype.itemsize)
    reader.fill(flat.data)
    array = flat.view(dtype)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
