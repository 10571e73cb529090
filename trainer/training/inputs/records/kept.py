"""Keeps an index in model_dir, so that it is made once; tasks of one machine wait for the first of them to make it.

    files/train.npz         the index of the files that data("train") names
    files/.part-train.npz   of some of them, while it is made; a task that is killed then goes on from there

A task without that folder, on another machine, makes an index of its own each time it starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from trainer.job.errors import UserError
from trainer.model_dir import checkpoint, layout
from trainer.model_dir.files import OWN
from trainer.training.inputs.records import index as indexes
from trainer.training.inputs.records import parquet, storage
from trainer.training.inputs.records.index import File, Index, Work

_FORMAT = 3
_ARRAYS = ("offsets", "counts", "bytes")
_LOCK_POLL_SECONDS = 0.05
"""Seconds between two attempts to lock an index that another task makes."""
_LOCK_SECONDS = 3600.0
"""Maximum wait for that task since it last touched the lock."""
_KEEP_SECONDS = 10.0
"""Seconds between two times at which an unfinished index is written, for the next start."""

Report: TypeAlias = Callable[[int, str | None], None]
"""Takes a number that changes as long as the work goes on, and at times a line about it."""


def index(
    names: Sequence[str], format: str, split: str, model_dir: str, max_bad: int, report: Report = lambda *_: None
) -> Index:
    """The index of these files: the kept one where they are unchanged.

    Raises:
        UserError: a file cannot be read or is damaged; or the training files are not those of the checkpoints.
    """
    path = layout.files(model_dir) / f"{split}.npz"
    part = path.with_name(f".part-{path.name}")
    with _alone(path, report) as touch:
        before = _read(path)
        known = [file for each in (before, _read(part)) if each and each.format == format for file in each.files]
        reached, kept = 0, time.monotonic()

        def follow(work: Work) -> None:
            nonlocal reached, kept
            if (reaches := work.bytes + len(work.done)) == reached:
                return
            reached, line, now = reaches, None, time.monotonic()
            touch()
            if now - kept > _KEEP_SECONDS:
                kept, read = now, f"{work.bytes / 1e9:.2f} GB read"
                line = f"{split}: {len(work.done)} of {len(names)} files indexed, {read}"
                _write(part, Index(format, tuple(work.done.values())))
            report(reached, line)

        made = indexes.build(names, format, known, max_bad, follow, parquet.index if format == "parquet" else None)
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if before is not None and before.sha256 == made.sha256 and before.files == made.files:
            return made
        if before is not None and split == "train" and checkpoint.steps(model_dir):
            _require_same(before, made, model_dir)
        _write(path, made)
        return made


def _require_same(before: Index, now: Index, model_dir: str) -> None:
    if before.sha256 == now.sha256:
        return
    old, new = ({file.name.rpartition("/")[2]: file for file in each.files} for each in (before, now))
    changes = [
        *(f"{name} is gone" for name in old if name not in new),
        *(f"{name} is new" for name in new if name not in old),
        *(f"{name} has changed" for name in new if name in old and new[name].sha256 != old[name].sha256),
    ]
    text = "; ".join(changes[:5]) + (f"; and {len(changes) - 5} more" if len(changes) > 5 else "")
    raise UserError(
        f"trainer.files: {text or 'the order of the files has changed'}, and the checkpoints in {model_dir} were "
        "trained on the data as it was; restore the files, or choose another model_dir"
    )


def require_unchanged(index: Index) -> None:
    """Checks that no local file has changed since the index was made.

    Raises:
        UserError: names the first that has.
    """
    for file in index.files:
        if not storage.is_remote(file.name) and storage.stat(file.name) != file.stat:
            raise UserError(f"{file.name}: changed while the job ran; start the job again, in another model_dir")


@contextlib.contextmanager
def _alone(path: Path, report: Report) -> Iterator[Callable[[], None]]:
    """Holds a lock beside the index, if that can be written. Yields a function for its holder to call while its work
    goes on: other tasks wait as long as it is called."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = (path.parent / f".{path.name}.lock").open("a")
    except OSError:
        yield lambda: None
        return
    with lock:
        deadline, touched = time.monotonic() + _LOCK_SECONDS, os.fstat(lock.fileno()).st_mtime_ns
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if (now := os.fstat(lock.fileno()).st_mtime_ns) != touched:
                deadline, touched = time.monotonic() + _LOCK_SECONDS, now
                report(touched, None)
            time.sleep(_LOCK_POLL_SECONDS)
        yield lambda: os.utime(lock.fileno())


def _read(path: Path) -> Index | None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            meta = json.loads(str(archive["meta"]))
            if meta["format_of_index"] != _FORMAT or meta["layout"] != indexes.LAYOUT:
                return None
            return _index(meta, {name: archive[name] for name in _ARRAYS})
    except (OSError, ValueError, TypeError, KeyError, AttributeError, EOFError, zipfile.BadZipFile):
        return None  # damaged or edited: a new one is made


def _index(meta: dict[str, Any], whole: dict[str, Any]) -> Index:
    files, at = [], 0
    for each in meta["files"]:
        blocks = slice(at, at := at + each.pop("blocks"))
        stat = storage.Stat(*each.pop("stat"))
        left_out = tuple((record, offset, count) for record, offset, count in each.pop("left_out"))
        arrays = {name: whole[name][blocks] for name in _ARRAYS}
        files.append(File(stat=stat, left_out=left_out, **each, **arrays))
    if {len(array) for array in whole.values()} != {at}:
        raise ValueError("other numbers of blocks")
    return Index(meta["format"], tuple(files))


def _write(path: Path, index: Index) -> None:
    """Writes the index atomically; a folder that cannot be written has none."""
    plain = [field.name for field in fields(File) if field.name not in _ARRAYS]
    files = [{**{name: getattr(file, name) for name in plain}, "blocks": len(file.counts)} for file in index.files]
    meta = {"format_of_index": _FORMAT, "layout": indexes.LAYOUT, "format": index.format, "files": files}
    arrays = {
        name: np.concatenate([np.zeros(0, np.int64), *(getattr(file, name) for file in index.files)])
        for name in _ARRAYS
    }
    temporary = path.with_name(f".tmp-{path.name}-{OWN}")
    try:
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, meta=json.dumps(meta), **arrays)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
