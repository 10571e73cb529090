"""Finds the records of one file without TensorFlow: where they begin, and a digest of them all.

A TFRecord is its length (8 bytes), the masked CRC-32C of the length (4), the data, and the masked CRC-32C of the data
(4): tensorflow/core/lib/io/record_writer.h. Only the lengths are read and checked here; the data is checked by
TensorFlow when it is read. The checksums of all data, in order, stand for the contents of the file.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Offsets: TypeAlias = npt.NDArray[np.int64]
_LENGTH = struct.Struct("<Q")
_FRAME, _HEADER, _FOOTER = 16, 12, 4
_CHUNKS = ((1 << 13, 1 << 20), (1 << 16, 1 << 17))
"""(mean bytes of a record, bytes to read at once); of larger records only the frames are read."""
_TEXT_CHUNK, _SEARCH_CHUNK, _INFLATED_CHUNK = 1 << 22, 1 << 20, 1 << 20
_SEARCH_BYTES = (1 << 16, 1 << 22)
"""How many bytes behind a damaged length are searched for the end of its record, first and at most. Python takes a
second for the latter."""
_FAR = 1 << 62
"""Behind the end of every file; the length of a record may be larger than an offset can be."""


class Broken(Exception):
    """A compressed file cannot be decompressed, or not by TensorFlow."""


class Bytes(Protocol):
    """The contents of a file. `at` never decreases by more than a frame."""

    def read(self, at: int, count: int) -> bytes: ...


@dataclass(frozen=True)
class Damage:
    """The first place at which a file cannot be read on."""

    record: int
    offset: int
    reason: str
    to_the_end: bool = False
    """Whether the damaged record takes the rest of the file."""


@dataclass(frozen=True)
class Scan:
    starts: Offsets
    """Offset of each record."""
    end: int
    """Offset at which the last record ends."""
    sha256: str
    damage: Damage | None = None


class Inflated:
    """The contents of a compressed file, from its beginning to its end.

    It takes what TensorFlow reads (zlib_inputstream.cc): gzip files of several parts, as of `cat a.gz b.gz`, unless one
    that others follow is empty; zeros behind the last; and of ZLIB one part.
    """

    def __init__(self, file: Bytes, compression: str) -> None:
        self._file, self._gzip = file, compression == "GZIP"
        self._position, self._buffer, self._begins = 0, b"", 0
        self._input, self._padded = b"", False
        self._begin_part()

    def read(self, at: int, count: int) -> bytes:
        while self._begins + len(self._buffer) < at + count and (more := self._more()):
            drop = max(0, min(at - self._begins, len(self._buffer)))
            self._begins, self._buffer = self._begins + drop, self._buffer[drop:] + more
        return self._buffer[at - self._begins : at - self._begins + count] if at >= self._begins else b""

    def _begin_part(self) -> None:
        self._inflate, self._part_bytes = zlib.decompressobj(31 if self._gzip else 15), 0

    def _fetch(self) -> bytes:
        if not self._input:
            self._input = self._file.read(self._position, 1 << 20)
            self._position += len(self._input)
        return self._input

    def _more(self) -> bytes:
        """The next bytes, of which memory holds few however far they were compressed; none at the end."""
        while not self._inflate.eof or self._next_part():
            chunk = self._fetch()
            try:
                inflated = self._inflate.decompress(chunk, _INFLATED_CHUNK)
            except zlib.error as error:
                raise Broken(f"cannot be decompressed near byte {self._position}: {error}") from None
            self._input = self._inflate.unconsumed_tail or self._inflate.unused_data
            self._part_bytes += len(inflated)
            if inflated:
                return inflated
            if not chunk and not self._inflate.eof:
                raise Broken("is cut off")
        return b""

    def _next_part(self) -> bool:
        """Begins the part that follows the end of one, if there is another."""
        while self._gzip and self._fetch() and not any(self._input):
            self._input, self._padded = b"", True
        if not self._fetch():
            return False
        if not self._gzip or self._padded or self._input[:1] != b"\x1f":
            raise Broken("has other data behind its end")
        if not self._part_bytes:
            raise Broken("has an empty part, behind which TensorFlow reads nothing")
        self._begin_part()
        return True


def compression(file: Bytes, format: str) -> str | None:
    """The compression of a file by its first bytes, "" without one; None if it is not of this format."""
    head = file.read(0, _HEADER)
    # First: the length of a record may look like the beginning of a gzip file.
    if format != "text" and len(head) == _HEADER and _valid(np.frombuffer(head, np.uint8)[None])[0]:
        return ""
    if head[:2] == b"\x1f\x8b":
        return "GZIP"
    if format == "text" or not head:
        return ""
    return "ZLIB" if head[:1] == b"\x78" and len(head) > 1 and int.from_bytes(head[:2], "big") % 31 == 0 else None


def scan(file: Bytes, format: str, begin: int = 0) -> Scan:
    """The records from this offset on."""
    return _lines(file) if format == "text" else _tfrecords(file, begin)


def next_record(file: Bytes, damaged: int) -> tuple[int | None, bool]:
    """Where records begin again behind one whose length is damaged, and whether the checksum of its data proves that.
    If it does not, it is the first place that looks like a record, perhaps in data of the damaged one.

    None if there are no more.
    """
    for size in _SEARCH_BYTES:
        data = file.read(damaged + _HEADER, size)
        crcs = np.fromiter(accumulate(data, _with_byte, initial=0xFFFFFFFF), np.uint32)[: max(0, len(data) - 3)]
        after = np.ascontiguousarray(_windows(data, _FOOTER)).view("<u4")[:, 0]
        # The last: data that begin with a TFRecord have its length and the checksum of this.
        if len(ends := np.flatnonzero(_masked(~crcs) == after)):
            return damaged + _HEADER + int(ends[-1]) + _FOOTER, True
    after_it = damaged + 1
    while len(chunk := file.read(after_it, _SEARCH_CHUNK)) >= _HEADER:
        headers = _windows(chunk, _HEADER)
        if (valid := _valid(headers)).any():
            return after_it + int(valid.argmax()), False
        after_it += len(headers)
    return None, False


def _windows(data: bytes, size: int) -> npt.NDArray[np.uint8]:
    """All runs of `size` bytes."""
    if len(data) < size:
        return np.zeros((0, size), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), size)


def _tfrecords(file: Bytes, at: int) -> Scan:
    digest, parts, records, chunk_bytes, begin = hashlib.sha256(), [np.zeros(0, np.int64)], 0, 1 << 16, at

    def ended(reason: str | None, *, to_the_end: bool = False) -> Scan:
        damage = Damage(records, at, reason, to_the_end) if reason else None
        return Scan(np.concatenate(parts), at, digest.hexdigest(), damage)

    while True:
        # A frame: the checksum of the record before, then length and checksum of the length.
        first = at == begin
        chunk = bytes(_FOOTER) + file.read(at, chunk_bytes) if first else file.read(at - _FOOTER, chunk_bytes)
        if len(chunk) < _FOOTER:
            last = int(parts[-1][-1])
            parts[-1], at, records = parts[-1][:-1], last, records - 1
            return ended("it is cut off", to_the_end=True)
        if len(chunk) < _FRAME:
            digest.update(chunk[:_FOOTER])
            return ended("its length is cut off" if len(chunk) > _FOOTER else None, to_the_end=True)
        starts, place, last_place = [], 0, len(chunk) - _FRAME
        while place <= last_place:
            starts.append(place)
            place += min(_LENGTH.unpack_from(chunk, place + _FOOTER)[0], _FAR) + _FRAME
        places = np.array(starts)
        frames = np.frombuffer(chunk, np.uint8)[places[:, None] + np.arange(_FRAME)]
        valid = _valid(frames[:, _FOOTER:])
        good = len(valid) if valid.all() else int(valid.argmin())
        digest.update(frames[: min(good + 1, len(frames)), :_FOOTER].tobytes())
        parts.append(at + places[:good])
        records += good
        if good < len(valid):
            at += int(places[good])
            return ended("its length does not match the checksum")
        mean, at = place // len(starts), at + place
        chunk_bytes = next((size for limit, size in _CHUNKS if mean < limit), 1 << 9)


def _lines(file: Bytes) -> Scan:
    digest, parts, at, begins = hashlib.sha256(), [np.zeros(0, np.int64)], 0, True
    while chunk := file.read(at, _TEXT_CHUNK):
        digest.update(chunk)
        after = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + (at + 1)
        parts.append(np.concatenate([np.array([at] if begins else [], np.int64), after]))
        at += len(chunk)
        if begins := chunk.endswith(b"\n"):
            parts[-1] = parts[-1][:-1]  # the next line begins with the next chunk, if there is one
    return Scan(np.concatenate(parts), at, digest.hexdigest())


def _tables() -> npt.NDArray[np.uint32]:
    """CRC-32C (Castagnoli) of each byte followed by 0 to 7 zero bytes."""
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ np.uint32(0x82F63B78), crc >> 1)
    tables = [crc]
    for _ in range(7):
        tables.append((tables[-1] >> 8) ^ crc[tables[-1] & 0xFF])
    return np.stack(tables)


_CRC = _tables()
_CRC_BY_BYTE: list[int] = _CRC[0].tolist()


def _with_byte(crc: int, byte: int) -> int:
    """Goes on with a CRC-32C, without its final inversion."""
    return _CRC_BY_BYTE[(crc ^ byte) & 0xFF] ^ (crc >> 8)


def _masked(crc: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Returns a checksum as TensorFlow stores it (tensorflow/core/lib/hash/crc32c.h)."""
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)


def _valid(headers: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Whether each length matches its checksum; headers are [n, 12]."""
    crc = np.zeros(len(headers), np.uint32)
    for i in range(8):
        crc ^= _CRC[7 - i][headers[:, i] ^ (0xFF if i < 4 else 0)]
    matches: npt.NDArray[np.bool_] = _masked(~crc) == np.ascontiguousarray(headers[:, 8:12]).view("<u4")[:, 0]
    return matches
