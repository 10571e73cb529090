"""Merges the events of a child into its status."""

from __future__ import annotations

from trainer.protocol import events
from trainer.protocol.child import ChildStatus
from trainer.protocol.events import Event, Figures

_FIGURES_KEPT = 100
"""Limits the metrics of a model with thousands of them: each report to the chief contains the status."""
_MAIN_FIGURES = ("loss", "accuracy", "examples_per_second")
_OF_STEPS = ("steps_made", "seconds_input", "seconds_compute", "seconds_exchange", "seconds_wait", "input_share")


def take(status: ChildStatus, event: Event) -> None:
    """Takes what an event tells of its child."""
    match event:
        case events.Start(step, steps, line):
            status.step, status.steps, status.line = step, steps, line
        case events.Indexing(done):
            status.indexed = done
        case events.Indexed():
            status.indexed, status.has_index = None, True
        case events.Step():
            status.step = status.step if event.step is None else event.step
            for name in _OF_STEPS:
                if (value := getattr(event, name)) is not None:
                    setattr(status, name, value)
            _keep(status, event.figures)
        case events.EpochEnd(over):
            status.evaluating = not over
        case events.Scored(step, figures):
            status.step = status.step if step is None else step
            _keep(status, figures)
        case events.Stopped(step):
            status.step, status.stopped_well = status.step if step is None else step, True
        case events.Saved(step, stalled, written, checkpoints):
            status.last_checkpoint, status.seconds_saving = step, stalled
            status.seconds_writing, status.checkpoints = written, checkpoints
        case events.PeerLost(text):
            status.peer_lost = text
        case events.Finishing(text):
            status.finishing, status.ending = True, text or None
        case events.Trained():
            status.trained = True


def _keep(status: ChildStatus, figures: Figures) -> None:
    """Keeps the newest figures. Of very many it keeps the main ones and the first ones."""
    kept, new = status.figures, dict(figures)
    main = {name: new.pop(name) for name in _MAIN_FIGURES if name in new}
    room = _FIGURES_KEPT - len(kept.keys() - set(_MAIN_FIGURES))
    first = [name for name in new if name not in kept][: max(0, room)]
    status.figures = kept | main | {name: new[name] for name in new if name in kept or name in first}
