"""A digest of what a program has written to model_dir, to see whether a generation made progress."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from trainer.model_dir import layout
from trainer.model_dir.regular import regular

MOST_FILES, MOST_READ = 10_000, 100
"""The most files that are looked at, as a program may share the folder with its data, and the most that are read: the
newest."""
ENDS = 1 << 16
"""Bytes that are read at the start and at the end of a file, so all of a small one. A checkpoint that is written again
with other weights differs there."""
_OURS = (
    layout.own, layout.result, layout.state, layout.lock, layout.lease, layout.logs, layout.history, layout.journal,
    partial(layout.journal, number=1), layout.spec, layout.reported, layout.mlflow,
)  # fmt: skip
"""Paths of the files that supervisors and `trainer track` write, which are not the program's: in a folder of their own,
or one by one in a model_dir that version 0.2 has begun."""
EMPTY = hashlib.sha256().hexdigest()
"""Digest of no files."""
_UNDERWAY = ".tmp-"
"""Prefix of the name of a file that is not complete yet (files.py)."""
_LOGS = (".log", ".out", ".tmp")
_EVENTS = "events.out.tfevents."


def fingerprint(model_dir: str) -> str:
    """Digest of the names, sizes and contents of a program's files. Not of logs and TensorBoard's events, which every
    start writes, nor of times: a restarted program writes its first checkpoint again."""
    digest = hashlib.sha256()
    files = list(itertools.islice(_files(Path(model_dir)), MOST_FILES))
    newest = {path for path, _ in sorted(files, key=lambda each: each[1].st_mtime_ns)[-MOST_READ:]}
    for path, about in files:
        digest.update(f"{path.relative_to(model_dir)}\0{about.st_size}\0".encode(errors="replace"))
        if path in newest:
            digest.update(_ends(path, about.st_size))
    return digest.hexdigest()


def _ends(path: Path, size: int) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb", opener=regular) as file:
        first = file.read(ENDS)
        file.seek(max(file.tell(), size - ENDS))
        return first + file.read(ENDS)
    return b""


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    ours = {path(folder) for path in _OURS}
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if Path(parent, each) not in ours)
        for name in sorted(names):
            path = Path(parent, name)
            if path in ours or name.startswith(_UNDERWAY) or name.endswith(_LOGS) or _EVENTS in name:
                continue
            with contextlib.suppress(OSError):
                if stat.S_ISREG((about := path.lstat()).st_mode):  # a pipe would be waited for
                    yield path, about
