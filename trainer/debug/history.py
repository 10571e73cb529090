"""The history of a job: what its logs and its place tell, in order of time."""

from __future__ import annotations

import re

from trainer.debug.facts import Facts, Moment, lines

AT_ONCE_SECONDS = 2.0
"""Within which all tasks report the same."""
ERROR = "trainer: "
"""Begins the line in which a task reports why it ends."""
_WARNING = "trainer: warning: "
TASK = re.compile(r"\b(?:chief|worker|ps|evaluator):\d+\b")
_NEWS = re.compile(
    r" lost \(|re-forming|generation \d+ formed|restarting it|was killed by|stopped by a signal|^waiting: |"
    r"was asked to stop|is damaged|hangs?\b|out of memory|^done: |^warning: |without a new step"
)
"""Lines of supervisors and launchers that belong to a job's history."""


def history(facts: Facts) -> list[Moment]:
    """All that is known to have happened, in order of time; what several tasks report at once as the first has it."""
    found = [*facts.moments, *(each for log in facts.logs for each in lines(log) if _tells(each.text))]
    kept: list[Moment] = []
    last: dict[str, float] = {}
    for each in sorted(found, key=lambda each: (each.time is None, each.time or 0.0)):
        text, now = core(each.text), each.time or 0.0
        if text not in last or now - last[text] > AT_ONCE_SECONDS:
            kept.append(each)
            last[text] = now
    return kept


def _tells(text: str) -> bool:
    return is_error(text) or bool(_NEWS.search(text))


def is_error(text: str) -> bool:
    """Whether a line is one in which a task reports why it ends."""
    return text.startswith(ERROR) and not text.startswith(_WARNING)


def core(text: str) -> str:
    """A text as all tasks have it: each begins the same error differently."""
    text = text.removeprefix(ERROR)
    task = TASK.match(text)
    return text[task.end() :].lstrip(": ") if task and text[task.end() :].startswith(": ") else text
