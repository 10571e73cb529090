"""What the chief knows of its job, as points of its history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainer.job.messages import digits
from trainer.job.spec import JobSpec
from trainer.model_dir.history import MOST_METRICS, Mark, Path
from trainer.protocol.events import Figures
from trainer.protocol.reports import Used
from trainer.protocol.status import Shares
from trainer.supervisor.children.child_status import OWN, ChildStatus
from trainer.supervisor.rendezvous.state_machine import Rendezvous

_NO_METRICS = {*OWN, "pid", "input_share", "loss", "examples_per_second", "copying"}

Point = dict[Path, float | None]


class Sampler:
    """Turns reports into points and marks. It keeps what it needs to see that something is new."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._events = 0
        self._away: dict[str, float] = {}
        """Tasks that were lost, and when."""
        self._checkpoint: int | None = None
        self._saving = 0.0
        self._scored: object = None

    def job_point(self, rendezvous: Rendezvous, figures: Figures, rows: Mapping[str, Figures]) -> Point:
        """
        Args:
            figures: of the chief's child.
            rows: of all tasks, by their names.
        """
        rates = [rate for row in rows.values() if (rate := _number(row.get("examples_per_second"))) is not None]
        whole = _number(figures.get("examples_per_second")) if self._spec.traits.coordinated else None
        point: Point = {
            ("step",): _number(figures.get("step")),
            ("loss",): _number(figures.get("loss")),
            ("examples_per_second",): whole if whole is not None else sum(rates) if rates else None,
        }
        point |= {("metrics", name): value for name, value in _metrics(figures)}
        for name in rendezvous.tasks.evaluators:
            score = rows.get(name, {})
            own = {**dict(_metrics(score)), "loss": _number(score.get("loss"))}
            point |= {("scores", metric): value for metric, value in own.items() if value is not None}
        return point

    def marks(self, now: float, rendezvous: Rendezvous, rows: Mapping[str, Figures]) -> list[Mark]:
        """What has happened since the last call."""
        new, self._events = rendezvous.chronicle.since(self._events), rendezvous.chronicle.noted
        found = []
        for event in new:
            found.append(Mark(event.time, event.kind, event.text, event.task, rendezvous.generation))
            if event.kind == "lost" and event.task:
                self._away[event.task] = event.time
            elif event.kind == "formed":
                self._away.clear()
        return [*found, *self._back(now, rendezvous), *self._score(now, rendezvous, rows)]

    def new_checkpoint(self, status: ChildStatus) -> tuple[int, float] | None:
        """A checkpoint that the chief's child has completed since the last call: its step, and for how many seconds
        training waited for it."""
        before, self._saving = self._saving, status.seconds_saving or 0.0
        if status.last_checkpoint in (None, self._checkpoint):
            return None
        self._checkpoint = status.last_checkpoint
        return self._checkpoint, max(0.0, self._saving - before)

    def _score(self, now: float, rendezvous: Rendezvous, rows: Mapping[str, Figures]) -> Iterator[Mark]:
        for name in rendezvous.tasks.evaluators:
            row = rows.get(name, {})
            step = row.get("step")
            if isinstance(step, int) and step != self._scored:
                self._scored = step
                scores = {"loss": _number(row.get("loss")), **dict(_metrics(row))}
                listed = " ".join(f"{metric}={digits(value)}" for metric, value in scores.items() if value is not None)
                yield Mark(now, "score", f"step {step}: {listed}", name, rendezvous.generation, step)

    def _back(self, now: float, rendezvous: Rendezvous) -> Iterator[Mark]:
        """Tasks that restart alone and run again."""
        if rendezvous.phase != "running":
            return
        for name, since in list(self._away.items()):
            member = rendezvous.tasks.members.get(name)
            if member is None or member.silent or member.report.generation != rendezvous.generation:
                continue
            del self._away[name]
            seconds = now - since
            text = f"{name} runs again after {seconds:.1f} s"
            yield Mark(now, "restarted", text, name, rendezvous.generation, seconds=seconds)


def tasks_point(rows: Mapping[str, Figures], shares: Mapping[str, Shares], used: Mapping[str, Used]) -> Point:
    """Of all tasks: their steps, the shares of their time, and what they use."""
    point: Point = {}
    for name, row in rows.items():
        point[name, "step"] = _number(row.get("step"))
        point[name, "examples_per_second"] = _number(row.get("examples_per_second"))
    for measured in (shares, used):
        point |= {(name, key): value for name, own in measured.items() for key, value in vars(own).items()}
    return point


def rows_of(rendezvous: Rendezvous, workers: Mapping[str, Figures]) -> dict[str, Figures]:
    """The figures of each task that has reported; of a ps-worker with those of its coordinator."""
    members = rendezvous.tasks.members
    names = (*rendezvous.tasks.required, *rendezvous.tasks.evaluators)
    there: dict[str, Figures] = {name: members[name].report.status for name in names if name in members}
    return there | {name: {**own, **there[name]} for name, own in workers.items() if name in there}


def used_of(rendezvous: Rendezvous) -> dict[str, Used]:
    """What each task uses, where that is known."""
    return {name: used for name, member in rendezvous.tasks.members.items() if (used := member.report.used)}


def _metrics(figures: Figures) -> list[tuple[str, float]]:
    named = ((name, _number(value)) for name, value in figures.items() if name not in _NO_METRICS)
    return [(name, value) for name, value in named if value is not None][:MOST_METRICS]


def _number(value: object) -> float | None:
    """None of what is no number that a column takes; what a child sends is not validated."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e300 < value < 1e300:
        return None
    return float(value)
