"""The status of a child, merged from its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from trainer.protocol import events
from trainer.protocol.events import Event, Figures

_FIGURES_KEPT = 100
"""Limits the metrics of a model with thousands of them: each report to the chief contains the status."""
_MAIN_FIGURES = ("loss", "accuracy", "examples_per_second")


@dataclass
class ChildStatus:
    """Fields are None, or False, until an event sets them."""

    child_pid: int | None = None
    step: int | None = None
    steps: int | None = None
    """Of the whole job."""
    line: str | None = None
    """The start line."""
    indexed: int | None = None
    """Changes while the child indexes its files."""
    has_index: bool = False
    """Whether it has done that for all that it trains on."""
    last_checkpoint: int | None = None
    seconds_saving: float | None = None
    """Seconds for which training has waited for checkpoints."""
    seconds_writing: float | None = None
    """Seconds in which checkpoints were written, while training continued."""
    checkpoints: int | None = None
    """Checkpoints written."""
    steps_made: int | None = None
    seconds_input: float | None = None
    seconds_compute: float | None = None
    seconds_exchange: float | None = None
    seconds_wait: float | None = None
    """As in events.Step."""
    peer_lost: str | None = None
    """The error that it ended with, if a lost peer may have caused it."""
    trained: bool = False
    finishing: bool = False
    evaluating: bool = False
    """Whether callbacks and a validation run at the end of an epoch, or test data are read before the first step."""
    stopped_well: bool = False
    """Whether it ended on request, with a checkpoint."""
    workers: Mapping[str, Figures] = field(default_factory=dict)
    """By ps-worker: measurements of the coordinator."""
    figures: dict[str, object] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        match event:
            case events.Start(step, steps, line):
                self.step, self.steps, self.line = step, steps, line
            case events.Indexing(done):
                self.indexed = done
            case events.Indexed():
                self.indexed, self.has_index = None, True
            case events.Step():
                self.step = self.step if event.step is None else event.step
                self.workers = self.workers if event.workers is None else event.workers
                for name in _OF_STEPS:
                    setattr(self, name, own if (own := getattr(event, name)) is not None else getattr(self, name))
                self._keep(event.figures)
            case events.EpochEnd(over):
                self.evaluating = not over
            case events.Scored(step, figures):
                self.step = self.step if step is None else step
                self._keep(figures)
            case events.Stopped(step):
                self.step, self.stopped_well = self.step if step is None else step, True
            case events.Saved(step, stalled, written, checkpoints):
                self.last_checkpoint, self.seconds_saving = step, stalled
                self.seconds_writing, self.checkpoints = written, checkpoints
            case events.PeerLost(text):
                self.peer_lost = text
            case events.Finishing():
                self.finishing = True
            case events.Trained():
                self.trained = True

    def document(self) -> dict[str, object]:
        """The figures and all other known fields except `workers`, by name."""
        own = {name: getattr(self, name) for name in OWN if name != "workers"}
        return {
            **self.figures,
            **{name: value for name, value in own.items() if value is not None and value is not False},
        }

    def _keep(self, figures: Figures) -> None:
        """Keeps the newest of the user's figures, but for those that have the name of ours. Of very many it keeps the
        main ones and the first ones."""
        mine = {name: value for name, value in figures.items() if name not in (*OWN, *_OF_THE_TASK)}
        main = {name: mine.pop(name) for name in _MAIN_FIGURES if name in mine}
        room = _FIGURES_KEPT - len(self.figures.keys() - set(_MAIN_FIGURES))
        new = [name for name in mine if name not in self.figures][: max(0, room)]
        self.figures |= main | {name: mine[name] for name in mine if name in self.figures or name in new}


OWN = [each.name for each in fields(ChildStatus) if each.name != "figures"]
_OF_STEPS = ("steps_made", "seconds_input", "seconds_compute", "seconds_exchange", "seconds_wait")
_OF_THE_TASK = ("pid", "copying")
"""Added by its supervisor (agent.py)."""
