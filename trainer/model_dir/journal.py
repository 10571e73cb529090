"""journal.jsonl: the one record of what happened to a job, a JSON object in each line, in order of time.

Its chief appends to it while it has the lease. For an instant two chiefs may: each line has the number of its chief's
lease (`term`), and a line of an earlier chief behind one of a later chief does not count. The file has a limit: then it
becomes journal.1.jsonl, in place of the one before. protocol/facts.py says what the lines mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from trainer.model_dir import disk, layout
from trainer.model_dir.files import json_object

FILE_BYTES = 8 << 20
"""The length from which on a file is replaced by a new one."""
LONGEST_LINE = 1 << 20


def append(model_dir: str, term: int, lines: Iterable[Mapping[str, object]]) -> None:
    """Appends lines, behind what a killed chief may have left of a line.

    Args:
        term: the number of the chief's lease.

    Raises:
        OSError: the disk is full, or read-only. Nothing that was there before is lost, and none of the lines was added.
    """
    path = layout.journal(model_dir)
    text = "".join(json.dumps({"term": term, **line}) + "\n" for line in lines).encode()
    disk.make_folder(path.parent)
    if disk.size(path) > FILE_BYTES:
        disk.move(path, layout.journal(model_dir, 1))
    disk.append(path, text)


def read(model_dir: str, before: float = math.inf) -> list[dict[str, object]]:
    """The lines of both files, without those that are damaged, or of a chief that had lost its place; empty if there is
    no journal, or it cannot be read.

    Args:
        before: a term: only the lines of chiefs that had the lease before that.
    """
    lines = [line for number in (1, 0) for line in parse(_end(layout.journal(model_dir, number)))]
    return current(lines, before)


def parse(body: bytes) -> Iterator[dict[str, object]]:
    """The JSON objects of whole lines."""
    for line in body.split(b"\n"):
        if len(line) <= LONGEST_LINE and (found := json_object(line)):
            yield found


def current(lines: Iterable[dict[str, object]], before: float = math.inf) -> list[dict[str, object]]:
    """Lines without those of a chief that had lost its place, and without their terms; `before` as in `read`."""
    newest, kept = 0, []
    for line in lines:
        term = line.pop("term", 0)
        if isinstance(term, int) and newest <= term < before:
            newest = term
            kept.append(line)
    return kept


def _end(path: Path) -> bytes:
    """The last lines of a file, however long it is: a program may have written to it."""
    try:
        return disk.tail(path, 2 * FILE_BYTES)
    except OSError:
        return b""
