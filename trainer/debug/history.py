"""The history of a job: what its chief and its place have recorded, and the errors in its logs, in order of time."""

from __future__ import annotations

import re

from trainer.debug.evidence import Evidence, Moment, lines
from trainer.protocol.facts import Began

AT_ONCE_SECONDS = 2.0
"""Time within which all tasks report the same."""
ERROR = "trainer: "
"""Begins the line in which a task reports why it ends."""
_WARNING = "trainer: warning: "
TASK = re.compile(r"\b(?:chief|worker|ps|evaluator):\d+\b")


def history(evidence: Evidence) -> list[Moment]:
    """All that is known to have happened, in order of time; what several tasks report at once as the first has it."""
    recorded = [
        Moment(each.text, each.task or "", each.time, evidence.journal_path)
        for each in evidence.journal
        if not isinstance(each.fact, Began)
    ]
    errors = [each for log in evidence.logs for each in lines(log) if is_error(each.text)]
    kept: list[Moment] = []
    last: dict[str, float] = {}
    for each in sorted([*recorded, *evidence.moments, *errors], key=lambda each: (each.time is None, each.time or 0.0)):
        text, now = core(each.text), each.time or 0.0
        if text not in last or now - last[text] > AT_ONCE_SECONDS:
            kept.append(each)
            last[text] = now
    return kept


def is_error(text: str) -> bool:
    """Whether a line is one in which a task reports why it ends."""
    return text.startswith(ERROR) and not text.startswith(_WARNING)


def core(text: str) -> str:
    """A text as all tasks have it: each begins the same error differently."""
    text = text.removeprefix(ERROR)
    task = TASK.match(text)
    return text[task.end() :].lstrip(": ") if task and text[task.end() :].startswith(": ") else text
