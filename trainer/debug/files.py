"""The files of a model_dir in an archive: its documents and logs whole or in part, of all others only their sizes."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainer.debug import ends
from trainer.debug.archive import Archive
from trainer.debug.ends import Ends
from trainer.debug.facts import Facts, Moment
from trainer.model_dir import layout

FOLDER = "model_dir"
"""In the archive."""
MOST_LISTED = 5000
_DOCUMENT = re.compile(r"[^/]+\.json|(best/)?checkpoints/[^/]+/meta\.json|logs/[^/]+\.json")
_LOG = re.compile(r"[^/]+\.(jsonl|csv|txt|log)|logs/.+")
_OF_TASK = re.compile(r"logs/(?P<type>chief|worker|ps|evaluator)-(?P<index>\d+)\.")
_LARGEST_DOCUMENT = 16 << 20


def wanted(path: str) -> bool:
    """Whether the archive has the content of a file, by its path in model_dir."""
    return bool(_DOCUMENT.fullmatch(path) or _LOG.fullmatch(path))


def add_folder(archive: Archive, facts: Facts, folder: Path) -> None:
    """Adds a model_dir of this machine."""
    found = list(_walk(folder))
    listing = [f"{size:>14,}  {path}" for path, size in sorted(found)]
    more = [f"... and more than {MOST_LISTED:,} files"] if len(found) >= MOST_LISTED else []
    archive.text(f"{FOLDER}/files.txt", "\n".join([*listing, *more, ""]))
    chosen = [path for path, _ in found if wanted(path)]
    most = ends.share(len(chosen))
    for path in sorted(chosen):
        with archive.part(f"{FOLDER}/{path}"):
            limit = _LARGEST_DOCUMENT if _DOCUMENT.fullmatch(path) else most
            add(archive, facts, path, ends.of_file(folder / path, limit))


def add(archive: Archive, facts: Facts, path: str, content: Ends) -> None:
    """Adds a file of model_dir, by its path there."""
    if _DOCUMENT.fullmatch(path) and not content.left_out:
        try:
            document = json.loads(content.head)
        except (ValueError, RecursionError):
            pass  # half written, or of another program: as it is
        else:
            archive.document(f"{FOLDER}/{path}", document)
            if path == layout.HISTORY and isinstance(document, dict):
                facts.moments += marks(document, f"{FOLDER}/{path}")
            return
    task = _OF_TASK.match(path)
    # A browser shows a text, whatever the name of the file was.
    shown = path if path.endswith((".txt", ".csv", ".jsonl")) else f"{path}.txt"
    log = archive.log(f"{FOLDER}/{shown}", content, f"{task['type']}:{task['index']}" if task else "")
    if path.startswith("logs/"):
        facts.logs.append(log)


def marks(document: Mapping[str, object], path: str) -> Iterator[Moment]:
    """What happened to a job, from its history.json."""
    history = document.get("history")
    found = history.get("marks") if isinstance(history, dict) else None
    hangs = document.get("hangs")
    for each in [*(found if isinstance(found, list) else []), *(hangs if isinstance(hangs, list) else [])]:
        if isinstance(each, dict) and isinstance(text := each.get("text"), str):
            task, when = each.get("task"), each.get("time")
            yield Moment(text, str(task or ""), float(when) if isinstance(when, (int, float)) else None, path)


def _walk(folder: Path) -> Iterator[tuple[str, int]]:
    """The regular files of a folder and of those in it, with their sizes."""
    count = 0
    for top, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(top, name)
            try:
                found = path.lstat()
            except OSError:
                continue
            if not stat.S_ISREG(found.st_mode):
                continue  # a link may lead to any file of the user, and a pipe has no end
            yield path.relative_to(folder).as_posix(), found.st_size
            count += 1
            if count >= MOST_LISTED:
                return
