"""What a model_dir says about its job: the spec, what happened, whether it still runs."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from trainer.job import load
from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.model_dir import journal, layout, lease
from trainer.model_dir import state as job_state
from trainer.model_dir.files import read_json
from trainer.protocol import facts
from trainer.protocol.facts import Began, Cause, Ended, Entry, Formed, Lost, Stalled

LEASE_SECONDS = 10.0
"""A lease that was renewed so lately is that of a chief that works: a file system may have no locks."""


@dataclass(frozen=True)
class Story:
    """A job since it began, or began anew after a stop or a failure."""

    started: float = 0.0
    """When it began for the first time, in seconds since the epoch."""
    began: float = 0.0
    """When it began the last time."""
    generations: int = 0
    restarts: int = 0
    """Losses for which the cluster, or a task alone, restarted, since the job began the last time."""
    lost: str = ""
    """The newest of them in words."""
    ended: Entry | None = None
    """Its end, unless it runs."""

    @property
    def code(self) -> int:
        return self.ended.fact.code if self.ended and isinstance(self.ended.fact, Ended) else 0

    @property
    def message(self) -> str:
        return self.ended.fact.message if self.ended and isinstance(self.ended.fact, Ended) else ""


class Reader:
    """Reads the journal when it has changed."""

    def __init__(self, model_dir: str) -> None:
        self._dir, self._files, self._story = model_dir, "", Story()

    def read(self) -> Story:
        paths = [layout.journal(self._dir, number) for number in (0, 1)]
        files = " ".join(f"{about.st_ino}:{about.st_size}" for path in paths if (about := _about(path)))
        if files != self._files:
            self._files, self._story = files, read(self._dir)
        return self._story


def _about(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def read(model_dir: str) -> Story:
    """The story in the journal; an empty one if there is none."""
    entries = [entry for line in journal.read(model_dir) if (entry := facts.parse(line))]
    if not entries:
        return Story()
    begun = [i for i, entry in enumerate(entries) if isinstance(entry.fact, Began)]
    own = entries[begun[-1] :] if begun else entries
    losses = [entry for entry in own if _restarts(entry)]
    return Story(
        started=entries[0].time,
        began=own[0].time,
        generations=max(entry.fact.number if isinstance(entry.fact, Formed) else entry.generation for entry in own),
        restarts=len(losses),
        lost=losses[-1].text if losses else "",
        ended=next((entry for entry in own[::-1] if isinstance(entry.fact, Ended)), None),
    )


def _restarts(entry: Entry) -> bool:
    fact = entry.fact
    if isinstance(fact, Lost):
        return fact.then != "not_awaited" and fact.loss.cause is not Cause.ASKED_TO_STOP
    return isinstance(fact, Stalled)


def spec(model_dir: str) -> JobSpec | None:
    """The spec of the last job that began there; None if none has.

    Raises:
        UserError: this version cannot read it.
    """
    found = read_json(layout.spec(model_dir)) or read_json(layout.result(model_dir)).get("spec")
    if not isinstance(found, dict):
        return None
    try:
        read = load.build({**found, "model_dir": model_dir})
    except UserError as error:
        first = error.problems[0]
        raise UserError(
            f"{model_dir}: the spec of its job cannot be read: {first}; use the trainer that ran it"
        ) from None
    return read


def runs(model_dir: str) -> bool:
    """Whether a chief works there, here or on another machine."""
    if job_state.in_use(model_dir):
        return True
    try:
        renewed = layout.lease(model_dir).stat().st_mtime
    except OSError:
        return False
    return time.time() - renewed < LEASE_SECONDS and not lease.read(model_dir).released
