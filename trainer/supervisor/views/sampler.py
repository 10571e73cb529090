"""Points of the page's curves, from snapshots of the job."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.model_dir.history import MOST_METRICS, Path
from trainer.protocol.child import ChildStatus
from trainer.supervisor.views.snapshot import Snapshot

Point = dict[Path, float | None]


def job_point(snapshot: Snapshot) -> Point:
    """The figures of the whole job."""
    job = snapshot.job
    point: Point = {
        ("step",): _float(job.step),
        ("loss",): job.loss,
        ("examples_per_second",): job.examples_per_second,
    }
    point |= {("metrics", name): value for name, value in _some_metrics(job)}
    for name, row in job.tasks.items():
        if name.startswith("evaluator:"):
            scores = {**dict(_some_metrics(row)), "loss": row.loss}
            point |= {("scores", metric): value for metric, value in scores.items() if value is not None}
    return point


def tasks_point(snapshot: Snapshot) -> Point:
    """Of each task that reports: its step, its rate, the shares of its time, and what it uses."""
    point: Point = {}
    for name, row in snapshot.job.tasks.items():
        if row.state == "absent":
            continue
        point[name, "step"], point[name, "examples_per_second"] = _float(row.step), row.examples_per_second
        for measured in (row.shares, snapshot.used.get(name)):
            if measured is not None:
                point |= {(name, key): value for key, value in vars(measured).items()}
    return point


def nested(point: Point) -> Mapping[str, object]:
    """A point as a JSON object, by the paths of its columns."""
    tops: dict[str, object] = {}
    inner: dict[str, Point] = {}
    for (name, *rest), value in point.items():
        if rest:
            inner.setdefault(name, {})[tuple(rest)] = value
        else:
            tops[name] = value
    return {**tops, **{name: nested(each) for name, each in inner.items()}}


def _some_metrics(status: ChildStatus) -> list[tuple[str, float]]:
    return list(status.metrics.items())[:MOST_METRICS]


def _float(step: int | None) -> float | None:
    return None if step is None else float(step)
