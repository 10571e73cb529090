"""What has happened to a job since its start, and how often something restarted. Survives the chief's restarts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trainer import clocks
from trainer.model_dir.result import JobEvent
from trainer.protocol import facts
from trainer.protocol.facts import Entry, Fact

EVENTS_KEPT = 50
ENTRIES_KEPT = 1000
"""Facts that an observer can still take: it looks at each beat."""


@dataclass
class Chronicle:
    """The facts of the job that its chief knows, and counts of restarts."""

    news: deque[Entry] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    """The newest of those that are events of the job."""
    restarts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(facts.LABELS, 0)))
    """Restarts by their cause's label."""
    noted: int = 0
    """The number of all facts that this chief has noted itself."""
    _newest: deque[Entry] = field(default_factory=lambda: deque(maxlen=ENTRIES_KEPT))

    def note(self, fact: Fact, generation: int, step: int) -> None:
        entry = facts.entry(clocks.wall(), fact, generation, step)
        self._newest.append(entry)
        self.noted += 1
        if fact.news:
            self.news.append(entry)

    def since(self, noted: int) -> list[Entry]:
        """The facts since this chief had noted so many."""
        new = self.noted - noted
        return list(self._newest)[max(0, len(self._newest) - new) :] if new else []

    @property
    def events(self) -> list[JobEvent]:
        """The newest events, as in /status and result.json."""
        return [event(each) for each in self.news]


def event(entry: Entry) -> JobEvent:
    return JobEvent(entry.time, entry.text, entry.kind, entry.task)


def of(entries: Iterable[Entry], restarts: Mapping[str, int]) -> Chronicle:
    """That of an earlier chief, which files had. Without what another version or a user may have written."""
    news = deque((each for each in entries if each.fact.news), EVENTS_KEPT)
    return Chronicle(news, Counter({label: restarts.get(label, 0) for label in facts.LABELS}))
