"""The files of a model_dir in an archive: trainer's own documents, and the logs. Of all others only the sizes."""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from trainer.debug import ends
from trainer.debug.archive import Archive
from trainer.debug.ends import Ends
from trainer.debug.evidence import Evidence, Moment
from trainer.job.errors import UserError
from trainer.model_dir import journal, layout, stacks
from trainer.protocol.facts import parse

FOLDER = "model_dir"
"""The folder in the archive."""
MOST_LISTED = 5000
DOCUMENTS = (
    "result.json",
    "state.json",
    "history.json",
    "lease.json",
    "spec.json",
    "init_from.json",
    "csv_lengths.json",
)
JOURNALS = ("journal.1.jsonl", layout.JOURNAL)
OWN = (*DOCUMENTS, *JOURNALS, "reported.jsonl")
"""Names in the folder of trainer's own files, which the archive has without that folder (layout.own)."""
CURVES = ("metrics.jsonl", "evaluation.jsonl", "validation.jsonl")
"""Names in model_dir."""
_DOCUMENT = re.compile(
    rf"{'|'.join(map(re.escape, (*DOCUMENTS, *JOURNALS)))}|(best/)?checkpoints/[^/]+/meta\.json|logs/[^/]+\.end\.json"
)
_LOG = re.compile(rf"{'|'.join(map(re.escape, CURVES))}|reported\.jsonl|logs/.+")
_OF_ALL = re.compile(rf"{'|'.join(map(re.escape, CURVES))}|(best/)?checkpoints/.+")
"""What is in model_dir itself, wherever trainer's own files are."""
_OF_TASK = re.compile(r"logs/(?P<type>chief|worker|ps|evaluator)-(?P<index>\d+)\.")
_LARGEST_DOCUMENT = 16 << 20


def wanted(name: str) -> bool:
    """Whether the archive has the content of a file, by its name there."""
    return bool(_DOCUMENT.fullmatch(name) or _LOG.fullmatch(name))


def _name(path: str, own: str) -> str | None:
    """The name in the archive of a file whose content it has; None of another, such as one of a program.

    Args:
        path: in model_dir.
        own: the folder of trainer's own files there, with a slash; empty if version 0.2 has begun the model_dir.
    """
    name = path if _OF_ALL.fullmatch(path) else path.removeprefix(own) if path.startswith(own) else ""
    return name if wanted(name) else None


def add_folder(archive: Archive, evidence: Evidence, folder: Path) -> None:
    """Adds a model_dir of this machine."""
    refused: list[OSError] = []
    listed = list(_walk(folder, refused.append))
    listing = [f"{size:>14,}  {path}" for path, size in sorted(listed)]
    more = [f"... and more than {MOST_LISTED:,} files"] if len(listed) >= MOST_LISTED else []
    unread = [f"{error.filename}: {error.strerror}" for error in refused]
    archive.text(f"{FOLDER}/files.txt", "\n".join([*listing, *more, *unread, ""]))
    own = "" if layout.own(folder) == folder else f"{layout.OWN}/"
    chosen = {path: name for path, _ in listed if (name := _name(path, own))}
    most = ends.share(len(chosen))
    for path, name in sorted(chosen.items()):
        with archive.part(f"{FOLDER}/{name}"):
            limit = _LARGEST_DOCUMENT if _DOCUMENT.fullmatch(name) else most
            add(archive, evidence, name, ends.of_file(folder / path, limit))


def add(archive: Archive, evidence: Evidence, path: str, content: Ends) -> None:
    """Adds a file of model_dir, by its name in the archive."""
    if path in JOURNALS:
        _add_journal(archive, evidence, path, content)
        return
    if _DOCUMENT.fullmatch(path):
        document = _parsed(content)
        archive.document(f"{FOLDER}/{path}", document)
        if path in (layout.RESULT, layout.STATE) and isinstance(document, dict):
            evidence.hangs = stacks.parse(archive.redactor.document(document.get("hangs"))) or evidence.hangs
        if path == layout.HISTORY and isinstance(document, dict):
            evidence.moments += _marks(archive, document, f"{FOLDER}/{path}")
        return
    task = _OF_TASK.match(path)
    # A browser shows a text, whatever the name of the file was.
    shown = path if path.endswith((".txt", ".jsonl")) else f"{path}.txt"
    log = archive.log(f"{FOLDER}/{shown}", content, f"{task['type']}:{task['index']}" if task else "")
    if path.startswith("logs/"):
        evidence.logs.append(log)


def _add_journal(archive: Archive, evidence: Evidence, path: str, content: Ends) -> None:
    """Adds the journal, of which the older file comes first."""
    lines = [archive.redactor.document(line) for line in journal.parse(b"\n".join((content.head, content.tail)))]
    archive.text(f"{FOLDER}/{path}", "".join(f"{json.dumps(line)}\n" for line in lines))
    parsed = [
        entry for line in journal.current(each for each in lines if isinstance(each, dict)) if (entry := parse(line))
    ]
    evidence.journal = sorted([*evidence.journal, *parsed], key=lambda entry: entry.time)
    evidence.journal_path = f"{FOLDER}/{layout.JOURNAL}"


def _parsed(content: Ends) -> object:
    """
    Raises:
        UserError: it is not complete JSON, so that it is not known which of its values are the user's variables.
    """
    try:
        if not content.left_out:
            return json.loads(content.head)
    except (ValueError, RecursionError):
        pass
    raise UserError(
        f"is {'too long' if content.left_out else 'no JSON, perhaps half written'}: {len(content.head):,} bytes"
    )


def _marks(archive: Archive, document: Mapping[str, object], path: str) -> Iterator[Moment]:
    """What happened to a job, from the history.json of version 0.2, which had no journal."""
    history = document.get("history")
    marks = history.get("marks") if isinstance(history, dict) else None
    for each in marks if isinstance(marks, list) else []:
        if isinstance(each, dict) and isinstance(text := each.get("text"), str):
            task, when = each.get("task"), each.get("time")
            time = float(when) if isinstance(when, (int, float)) else None
            yield Moment(archive.clean(text), archive.clean(str(task or "")), time, path)


def _walk(folder: Path, refuse: Callable[[OSError], None]) -> Iterator[tuple[str, int]]:
    """The regular files of a model_dir, with their sizes: first trainer's own, for a program may have very many.

    Args:
        refuse: called with the error of a folder that cannot be read.
    """
    count = 0
    own = folder / layout.OWN
    first = os.walk(own, onerror=refuse) if own.is_dir() and not own.is_symlink() else ()
    for top, folders, names in itertools.chain(first, os.walk(folder, onerror=refuse)):
        folders[:] = sorted(each for each in folders if Path(top, each) != own)
        for name in sorted(names):
            path = Path(top, name)
            try:
                status = path.lstat()
            except OSError:
                continue
            if not stat.S_ISREG(status.st_mode):
                continue  # a link may lead to any file of the user, and a pipe has no end
            yield path.relative_to(folder).as_posix(), status.st_size
            count += 1
            if count >= MOST_LISTED:
                return
