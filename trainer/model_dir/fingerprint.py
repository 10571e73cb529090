"""A digest of what a program has written to model_dir, to see whether a generation made progress."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from trainer.model_dir import layout

MOST_FILES = 10_000
"""No more files are read: a model_dir that a program shares with its data may have millions."""
ENDS = 1 << 16
"""Bytes at the start and at the end of a file that are read: all of a small one. A checkpoint that is written again
with other weights differs there."""
_LOGS = (".log", ".out", ".tmp")
_EVENTS = "events.out.tfevents."


def fingerprint(model_dir: str) -> str:
    """Digest of the names, sizes and contents of a program's files. Not of logs and TensorBoard's events, which every
    start writes, nor of times: a restarted program writes its first checkpoint again."""
    digest = hashlib.sha256()
    for count, path in enumerate(_files(Path(model_dir))):
        if count == MOST_FILES:
            break
        with contextlib.suppress(OSError), path.open("rb") as file:
            size = path.stat().st_size
            first = file.read(ENDS)
            file.seek(max(file.tell(), size - ENDS))
            digest.update(f"{path.relative_to(model_dir)}\0{size}\0".encode(errors="replace") + first + file.read(ENDS))
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    ours = {layout.result(folder), layout.state(folder), layout.lock(folder), layout.logs(folder)}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if Path(place, each) not in ours)
        for name in sorted(names):
            path = Path(place, name)
            if path in ours or name.endswith(_LOGS) or _EVENTS in name:
                continue
            if path.is_file():  # a pipe would be waited for
                yield path
