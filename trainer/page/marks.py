"""What happened to a job, as marks on its page: a view of the journal."""

from __future__ import annotations

import math
from collections.abc import Iterable

from trainer.job.errors import Exit
from trainer.model_dir import history, journal
from trainer.model_dir.history import Mark
from trainer.protocol import facts
from trainer.protocol.facts import Back, Began, Checkpoint, Ended, Entry, Scored


def marks_of(model_dir: str, before: float = math.inf) -> list[Mark]:
    """The marks of a job's journal, those of a kind thinned out; empty if it has none.

    Args:
        before: as in journal.read.
    """
    return history.thinned(marks(entry for line in journal.read(model_dir, before) if (entry := facts.parse(line))))


def marks(entries: Iterable[Entry]) -> Iterable[Mark]:
    return (mark(entry) for entry in entries if not isinstance(entry.fact, Began))


def mark(entry: Entry) -> Mark:
    # Rounded as in the journal: what a page has seen live stays equal.
    made = Mark(round(entry.time, 3), entry.kind, entry.text, entry.task, entry.generation)
    match entry.fact:
        case Checkpoint(number, size, seconds):
            made.step, made.bytes, made.seconds = number, size, seconds
        case Scored(_, number):
            made.step = number
        case Back(_, seconds):
            made.seconds = seconds
        case Ended(code):
            made.kind, made.step = "stopped" if code == Exit.STOPPED else "ended", entry.step
    return made
