"""The index of a split's files: where runs of records, the blocks, begin.

A block holds the records that begin in one stretch of BLOCK_BYTES of a file, so an index of a terabyte has a few
million entries. TensorFlow can read an uncompressed file from any of its blocks on. A compressed file is one block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trainer.job.errors import UserError
from trainer.training.inputs.records import checksums, scan, storage
from trainer.training.inputs.records.scan import Offsets
from trainer.training.inputs.records.storage import Stat

BLOCK_BYTES = 1 << 18
LAYOUT = 1
"""Increases when the same files give other blocks, which changes the order of the records."""
_THREADS, _REPORT_SECONDS = 16, 1.0


@dataclass(frozen=True, eq=False)
class File:
    """A file and its blocks."""

    name: str
    stat: Stat
    compression: str
    sha256: str
    offsets: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]
    """Lengths of the blocks, as they are after decompression."""
    verified: bool = False
    """Whether all data was compared with its checksums."""
    left_out: tuple[tuple[int, int, int], ...] = ()
    """Each damaged record, or stretch in which records cannot be separated: its number, offset, and how many records
    its bytes hold."""

    schema: str = ""
    """JSON: the types of Parquet's columns, and which have no value in some row. Empty for other formats."""

    @property
    def records(self) -> int:
        return int(self.counts.sum())


@dataclass(frozen=True)
class Index:
    format: str
    files: tuple[File, ...]

    @cached_property
    def count(self) -> int:
        """Number of records."""
        return sum(file.records for file in self.files)

    @cached_property
    def bytes(self) -> int:
        return sum(int(file.bytes.sum()) for file in self.files)

    @property
    def left_out(self) -> int:
        """Number of damaged records."""
        return sum(count for file in self.files for *_, count in file.left_out)

    @property
    def first_left_out(self) -> str:
        """The first of them."""
        left_out = [
            f"{file.name}: record {record} at byte {offset}{f' and about {count - 1} more' if count > 1 else ''}"
            for file in self.files
            for record, offset, count in file.left_out[:4]
        ]
        return "; ".join(left_out[:3]) + ("; ..." if len(left_out) > 3 else "")

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the records and their order; not of the folder, which may be another one in each task.

        Damaged records that are left out do not change it: a job may resume with more of them allowed.
        """
        digest = hashlib.sha256(f"{LAYOUT} {self.format}".encode())
        for file in self.files:
            name = file.name.rpartition("/")[2]
            digest.update(f"\n{name} {file.compression} {file.sha256}".encode())
        return digest.hexdigest()


class _Stopped(Exception):
    """Another file has failed."""


@dataclass
class Work:
    """How far the making of an index is."""

    done: dict[str, File] = field(default_factory=dict)
    bytes: int = 0
    """About as many were read: threads may overwrite each other's sums."""
    stopped: bool = False

    def read(self, count: int) -> None:
        if self.stopped:
            raise _Stopped
        self.bytes += count


def build(
    names: Sequence[str],
    format: str,
    known: Iterable[File],
    max_bad: int,
    report: Callable[[Work], None] = lambda _: None,
    footer: Callable[[str, Stat, Callable[[int], None]], File] | None = None,
) -> Index:
    """Indexes the files; those that are `known` and have not changed are not read.

    Args:
        max_bad: how many damaged records to leave out; above 0 all data is read, so that all of them are found.
        report: called about once a second.
        footer: reads the index that a file itself has, and calls its last argument with the bytes of each read.

    Raises:
        UserError: a file cannot be read, is not of this format, or is damaged.
    """
    before, work = {file.name: file for file in known}, Work()

    def indexed(name: str) -> None:
        stat = storage.stat(name)
        file = before.get(name)
        if not (file and file.stat == stat and (file.verified or not max_bad)):
            file = footer(name, stat, work.read) if footer else _file(name, stat, format, max_bad, work)
        _require_few(Index(format, (file,)), max_bad)  # else it may not be whole
        work.done[name] = file

    with ThreadPoolExecutor(_THREADS) as pool:
        left = {pool.submit(indexed, name) for name in names}
        try:
            while left:
                ended, left = wait(left, _REPORT_SECONDS, FIRST_EXCEPTION)
                report(work)
                index = Index(format, tuple(work.done[name] for name in names if name in work.done))
                _require_few(index, max_bad)
                for each in ended:
                    each.result()
        finally:
            work.stopped = True
            pool.shutdown(cancel_futures=True)
    if format == "text" and len({bool(file.compression) for file in index.files if file.records}) > 1:
        raise UserError(f"{names[0]} and others: some files of text are compressed and some are not; make them alike")
    return index


def _require_few(index: Index, max_bad: int) -> None:
    if index.left_out > max_bad:
        raise UserError(
            f"train.max_bad_records: {max_bad}: more records are damaged: {index.first_left_out}; write the files "
            "again, or allow more"
        )


def _file(name: str, stat: Stat, format: str, max_bad: int, work: Work) -> File:
    with storage.opened(name, work.read) as plain:
        compression = scan.compression(plain, format)
        if compression is None:
            raise UserError(
                f"{name}: is not a TFRecord file: it does not begin with the length of a record; for lines of text "
                'give format="text"'
            )
        try:
            scanned = scan.scan(scan.Inflated(plain, compression) if compression else plain, format)
        except scan.Broken as error:
            raise UserError(f"{name}: {compression}: {error}; write the file again") from None
        starts, ends, sha256 = scanned.starts, np.append(scanned.starts[1:], scanned.end), scanned.sha256
        bad: dict[int, int | None] = {}
        """What is left out, by its number in the file: the bytes, if they may hold several records."""
        if scanned.damage and (not max_bad or compression):
            raise UserError(
                damaged(name, scanned.damage.record, scanned.damage.offset, scanned.damage.reason, compression)
            )
        while (damage := scanned.damage) and len(bad) <= max_bad:
            on, certain = (None, False) if damage.to_the_end else scan.next_record(plain, damage.offset)
            bad[len(starts)] = None if certain else (stat.size if on is None else on) - damage.offset
            starts, ends = np.append(starts, damage.offset), np.append(ends, damage.offset)
            if on is None:
                break
            scanned = scan.scan(plain, format, on)
            starts, ends = (
                np.append(starts, scanned.starts),
                np.append(ends, [*scanned.starts[1:], scanned.end][: len(scanned.starts)]),
            )
            sha256 = hashlib.sha256(f"{sha256} {damage.offset} {on} {scanned.sha256}".encode()).hexdigest()
    if max_bad and format == "tfrecord":
        bad |= dict.fromkeys(_bad_contents(name, compression, starts, bad, max_bad, work))
    good = np.ones(len(starts), bool)
    good[list(bad)] = False
    left_out = _counted(bad, starts, int((ends - starts)[good].sum()) // max(1, int(good.sum())))
    blocks = _blocks(starts, ends, good, None if compression else BLOCK_BYTES)
    return File(name, stat, compression, sha256, *blocks, max_bad > 0, left_out)


def _blocks(
    starts: Offsets, ends: Offsets, good: npt.NDArray[np.bool_], size: int | None
) -> tuple[Offsets, Offsets, Offsets]:
    """Offsets, numbers of records and lengths of the blocks of a file.

    A block ends at a multiple of `size`, if any, and before and after what is left out.
    """
    cells = starts // size if size else np.zeros_like(starts)
    cells, starts, ends = (cells + np.cumsum(~good))[good], starts[good], ends[good]
    firsts = np.flatnonzero(np.diff(cells, prepend=-1))
    lengths = ends[np.append(firsts[1:], len(starts)) - 1] - starts[firsts] if len(starts) else starts
    return starts[firsts], np.diff(firsts, append=len(starts)), lengths


def _counted(bad: Mapping[int, int | None], starts: Offsets, mean: int) -> tuple[tuple[int, int, int], ...]:
    """Number, offset and count of what is left out; a stretch counts by the mean size of a record."""
    counted, more = [], 0
    for number, length in sorted(bad.items()):
        count = max(1, (length or 0) // max(1, mean))
        counted.append((number + more, int(starts[number]), count))
        more += count - 1
    return tuple(counted)


def _bad_contents(
    name: str, compression: str, starts: Offsets, known: Collection[int], max_bad: int, work: Work
) -> list[int]:
    """The first records whose data do not match their checksum, at most one more than are allowed.

    Raises:
        UserError: in a compressed file, of which TensorFlow cannot read what follows.
    """
    bad, record = list[int](), 0
    for stop in [*sorted(known), len(starts)]:
        while record < stop and len(known) + len(bad) <= max_bad:
            offset = checksums.first_bad(name, compression, int(starts[record]), stop - record, work.read)
            if offset is None:
                break
            record = int(np.searchsorted(starts, offset, "right")) - 1
            if compression:
                raise UserError(damaged(name, record, offset, checksums.REASON, compression))
            bad.append(record)
            record += 1
        record = stop + 1
    return bad


def damaged(name: str, record: int, offset: int, reason: str, compression: str = "") -> str:
    way_out = (
        f"; of {compression} files none can be left out"
        if compression
        else ", or let damaged records be left out: train.max_bad_records"
    )
    return f"{name}: record {record} at byte {offset}: {reason}; write the file again{way_out}"
