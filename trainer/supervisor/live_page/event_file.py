"""TensorBoard's event files: records of TensorFlow's Event in protobuf, framed as in a TFRecord file.

The supervisor has neither TensorFlow nor tensorboard, which need numpy, and writes two kinds of values: texts and
scalars. Field numbers are those of event.proto in tensorflow/core/util and of summary.proto and tensor.proto in
tensorflow/core/framework; the frame is that of tensorflow/core/lib/io/record_writer.cc. Tests read the files by
TensorBoard.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5
"""Wire types of protobuf."""
_DT_STRING = 7
_TENSOR = 2
"""summary.DataClass of texts."""
_POLYNOMIAL = 0x82F63B78
"""CRC-32C, bit-reversed."""


def header(time: float) -> bytes:
    """The first record of a file."""
    return _record(_event(time, None, _field(3, b"brain.Event:2")))


def scalars(time: float, step: int, values: Mapping[str, float]) -> bytes:
    """A record of scalars by their tags."""
    rows = [_field(1, tag.encode()) + _key(2, _FLOAT) + struct.pack("<f", value) for tag, value in values.items()]
    return _record(_event(time, step, _field(5, b"".join(_field(1, row) for row in rows))))


def text(time: float, step: int, tag: str, markdown: str) -> bytes:
    """A record of one text."""
    plugin = _field(1, _field(1, b"text")) + _key(4, _VARINT) + _varint(_TENSOR)
    tensor = _key(1, _VARINT) + _varint(_DT_STRING) + _field(2, b"") + _field(8, markdown.encode(errors="replace"))
    value = _field(1, tag.encode()) + _field(8, tensor) + _field(9, plugin)
    return _record(_event(time, step, _field(5, _field(1, value))))


def _event(time: float, step: int | None, content: bytes) -> bytes:
    numbered = b"" if step is None else _key(2, _VARINT) + _varint(step)
    return _key(1, _DOUBLE) + struct.pack("<d", time) + numbered + content


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _field(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = [_table_entry(value) for value in range(256)]
