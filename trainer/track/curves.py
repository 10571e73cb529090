"""Reads the learning curves of model_dir while the job writes them, so that they can be sent elsewhere.

The files are the queue: what could not be sent is still in them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trainer import reporting
from trainer.model_dir import layout
from trainer.model_dir.files import json_object
from trainer.model_dir.regular import regular

FILES = {"metrics": "", "validation": "", "evaluation": "test_", "reported": ""}
"""By the name of a curve what its figures have in front of theirs, as in result.json."""
VALUES_PER_SECOND, BURST = 200.0, 5000.0
"""What is read of a curve: so many values per second of the job, after so many at once. Other records are left out, but
not the last one: a small model can log a thousand steps per second, all day."""
_LONGEST_LINE = 1 << 24


class Record(NamedTuple):
    step: int
    time: float
    figures: dict[str, float]


class Curve:
    """One file, which is read on from where the last call ended."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._path, self._prefix = path, prefix
        self._file: tuple[int, int] = (0, 0)
        self._offset = 0
        self._allowed, self._time = BURST, 0.0
        """Values that may be read, and the time of the last record."""
        self._held: Record | None = None
        """The newest record, if it was left out."""

    def read(self) -> Iterator[Record]:
        """New records. A file that was replaced or cut off, as by a child that continues from a checkpoint, is read
        again from its beginning."""
        for line in self._lines():
            if (record := _record(line, self._prefix)) is None:
                continue
            passed, self._time = max(0.0, record.time - self._time), record.time
            self._allowed = min(BURST, self._allowed + passed * VALUES_PER_SECOND)
            if self._allowed < min(BURST, len(record.figures)):
                self._held = record
                continue
            self._allowed -= len(record.figures)
            self._held = None
            yield record

    def last(self) -> Iterator[Record]:
        """The newest record, if it was left out."""
        if self._held is not None:
            yield self._held
            self._held = None

    def _lines(self) -> Iterator[bytes]:
        try:
            with open(self._path, "rb", opener=regular) as file:
                found = os.fstat(file.fileno())
                if (found.st_dev, found.st_ino) != self._file or found.st_size < self._offset:
                    self._file, self._offset, self._held = (found.st_dev, found.st_ino), 0, None
                    self._allowed, self._time = BURST, 0.0
                file.seek(self._offset)
                while (line := file.readline(_LONGEST_LINE)).endswith(b"\n"):  # the last one may not be complete yet
                    self._offset += len(line)
                    yield line
        except OSError:
            return


def of(model_dir: str) -> list[Curve]:
    return [Curve(layout.curve(model_dir, name), prefix) for name, prefix in FILES.items()]


def numbers(figures: object) -> dict[str, float]:
    """Those of the figures that are numbers; what a workload or a program reports is not validated."""
    found = {}
    for name, value in figures.items() if isinstance(figures, dict) else ():
        fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1e300
        if fits or isinstance(value, float) or value in reporting.NOT_FINITE:
            found[str(name)] = float(value)
    return found


def _record(line: bytes, prefix: str) -> Record | None:
    found = json_object(line)
    step, time = found.pop("step", None), found.pop("time", None)
    if not isinstance(step, int) or not isinstance(time, float) or not 0 <= step < 2**63:
        return None
    return Record(step, time, {f"{prefix}{name}": value for name, value in numbers(found).items()})
