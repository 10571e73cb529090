"""The result of the chief's child: its figures, and how they read in a line."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.job.messages import digits
from trainer.job.spec import JobSpec
from trainer.model_dir.best import BestCheckpoint
from trainer.model_dir.result import Computed, Ran, Training
from trainer.model_dir.state import State
from trainer.protocol.child import with_rate
from trainer.protocol.events import Done, Figures
from trainer.supervisor.children.child import Child

_LONGEST = 1000
"""Characters of figures in a line."""


def figures_of(spec: JobSpec, child: Child, done: Done, state: State) -> Training | Computed | Ran | None:
    """The result of the chief's child; None if it is not valid, because the user's code may have written it."""
    if spec.program:
        reported = child.status.figures
        if child.status.examples_per_second is not None and state.examples_per_second is not None:
            reported = with_rate(reported, state.examples_per_second)
        return Ran(dict(reported), child.status.step or 0, state.seconds_to_first_step)
    if not spec.traits.trains:
        return Computed(done.result) if done.result is not None else None
    tests = None if done.test is None else _numbers(done.test)
    if done.step is None or tests is None:
        return None
    return Training(
        steps=done.step,
        test=tests,
        examples_per_second=done.examples_per_second or state.examples_per_second,
        seconds_to_first_step=state.seconds_to_first_step,
        seconds_by_phase=state.phases,
        seconds_saving=child.status.seconds_saving,
        exports={name: str(verdict) for name, verdict in (done.exports or {}).items()},
        skipped_batches=done.skipped_batches,
        stopped_early=done.stopped_early,
        final_weights=done.final_weights,
        init_from=done.init_from,
        best=best_of(done),
        bad_records=done.bad_records,
    )


def best_of(done: Done) -> BestCheckpoint | None:
    """The best checkpoint; None also if the user's code has written something else."""
    best = done.best or {}
    metric, step, value = (best.get(name) for name in ("metric", "step", "value"))
    if isinstance(metric, str) and isinstance(step, int) and isinstance(value, float):
        return BestCheckpoint(metric, step, value)
    return None


def _numbers(figures: Figures) -> dict[str, float] | None:
    """The figures, if all are numbers. They may be NaN; an integer may be too large to print as a float."""
    numbers = {
        name: value
        for name, value in figures.items()
        if isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)
    }
    return numbers if len(numbers) == len(figures) else None


def main_figures(figures: Training | Computed | Ran) -> dict[str, object]:
    """The figures that are worth a line, by name."""
    if isinstance(figures, Training):
        return {"steps": figures.steps, **{f"test_{name}": figure for name, figure in figures.test.items()}}
    if isinstance(figures, Ran):
        return {**({"steps": figures.steps} if figures.steps else {}), **figures.reported}
    return {name: value for name, value in figures.result.items() if not isinstance(value, (dict, list))}


def in_words(values: Mapping[str, object]) -> str:
    """Figures as `name=value`, for one line."""
    words = [f"{name}={digits(value) if isinstance(value, float) else value}" for name, value in values.items()]
    return " ".join(words)[:_LONGEST]


def line(figures: Training | Computed | Ran, generations: int) -> str:
    """The main figures in one line, for the log."""
    return " ".join(filter(None, ["done:", in_words(main_figures(figures)), f"generations={generations}"]))


def phases(started: float, times: Mapping[str, float]) -> dict[str, float]:
    """Seconds until the first step was done, by phase; `times` as in Child. Empty if a time is missing: the user's code
    may have written the event of a step itself."""
    if not times.keys() >= {"warm", "go", "step"}:
        return {}
    ends = {
        "import": times["warm"],
        "rendezvous": max(times["go"], times["warm"]),
        "build": times.get("start"),
        "trace": times.get("traced"),
        "first_step": times["step"],
    }
    found, last = {}, started
    for name, end in ends.items():
        if end is not None:
            found[name], last = round(end - last, 3), end
    return found
