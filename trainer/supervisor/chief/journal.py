"""Writes the facts of the job to its journal, behind the lease."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainer.job.errors import TrainerError
from trainer.model_dir import journal, layout
from trainer.protocol import facts
from trainer.protocol.facts import Began, Ended, Entry
from trainer.protocol.log_lines import log_line

MOST_WAITING = 1000
"""Facts that wait for a disk on which there is no room; of more, the newest are kept."""


class Journal:
    def __init__(self, directory: str, term: int, require_lease: Callable[[], None]) -> None:
        """
        Args:
            term: the number of the chief's lease.
            require_lease: raises an error if another chief has taken this one's place.
        """
        self._directory, self._term, self._require_lease = directory, term, require_lease
        self._waiting: list[Entry] = []
        """Facts that could not be written yet."""
        self._complained = False

    def write(self, entries: Sequence[Entry]) -> None:
        """Appends facts. What cannot be written waits for the next call: the job goes on without it."""
        self._waiting = [*self._waiting, *entries][-MOST_WAITING:]
        if not self._waiting:
            return
        try:
            self._require_lease()
            journal.append(self._directory, self._term, [each.document() for each in self._waiting])
        except TrainerError:
            return  # the other chief writes what happens
        except OSError as error:
            if not self._complained:
                self._complained = True
                path = layout.journal(self._directory)
                log_line(
                    f"warning: {path}: cannot be written: {error.strerror}; the job goes on, and it is tried again"
                )
            return
        self._waiting.clear()


def since_it_began(directory: str) -> list[Entry]:
    """The facts of a job since it began, or began anew after a stop or a failure."""
    return _since_it_began(directory)[1]


def end_of(directory: str, run: str) -> Ended | None:
    """How this run of the job ended, if it has."""
    began, entries = _since_it_began(directory)
    ends = [entry.fact for entry in entries if isinstance(entry.fact, Ended)]
    return ends[-1] if ends and began is not None and began.run == run else None


def _since_it_began(directory: str) -> tuple[Began | None, list[Entry]]:
    entries = [entry for line in journal.read(directory) if (entry := facts.parse(line))]
    for i in reversed(range(len(entries))):
        if isinstance(began := entries[i].fact, Began):
            return began, entries[i + 1 :]
    return None, entries
