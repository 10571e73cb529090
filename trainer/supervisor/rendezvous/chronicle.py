"""What has happened to a job since its start, and how often something restarted. Survives the chief's restarts."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trainer.model_dir.result import JobEvent, Kind
from trainer.protocol.reports import plain_text
from trainer.supervisor.rendezvous.policy import CAUSES

EVENTS_KEPT = 50


@dataclass
class Chronicle:
    """What the chief tells about the job, besides its present state."""

    events: list[JobEvent] = field(default_factory=list)
    """The newest."""
    restarts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(CAUSES, 0)))
    """By their cause."""
    noted: int = 0
    """The number of all events that this chief has noted itself."""

    def note(self, text: str, kind: Kind = "", task: str | None = None) -> None:
        self.events = [*self.events[1 - EVENTS_KEPT :], JobEvent(time.time(), plain_text(text), kind, task)]
        self.noted += 1

    def since(self, noted: int) -> list[JobEvent]:
        """The events since this chief had noted so many."""
        return self.events[max(0, len(self.events) - (self.noted - noted)) :]


def of(events: Iterable[JobEvent], restarts: Mapping[str, int]) -> Chronicle:
    """That of an earlier chief, which a file had. Without what another version or a user may have written."""
    known = [event for event in events if math.isfinite(event.time)]
    return Chronicle(known[-EVENTS_KEPT:], Counter({cause: restarts.get(cause, 0) for cause in CAUSES}))
