"""/metrics: the content of /status for a task and its job, and what the task uses, for Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from trainer.protocol.child import ChildStatus
from trainer.protocol.status import JobStatus, TaskStatus
from trainer.protocol.types import Phase
from trainer.supervisor.metrics.gpus import Gpu
from trainer.supervisor.metrics.usage import Usage

_LONGEST_NAME = 100
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


class Family(NamedTuple):
    help: str
    labels: tuple[str, ...] = ()
    """Its labels besides job_name and task."""


METRICS = {
    "build_info": Family("Versions that the task runs with; always 1", ("trainer", "tensorflow", "keras", "python")),
    "phase": Family("1 for the phase that the job is in, 0 for the others", ("phase",)),
    "generation": Family("Number of the cluster's formation"),
    "task_up": Family("From the chief, of each task: whether it reports"),
    "task_slow": Family("From the chief, of each task: whether it makes the others wait, or is slower than they are"),
    "restarts_total": Family(
        "From the chief: restarts of the cluster and of tasks that restart alone, since the job was started",
        ("cause",),
    ),
    "child_restarts_total": Family("Restarts of this task's child alone, since its supervisor started"),
    "refused_reports_total": Family("From the chief: requests to its port that were not reports of this job"),
    "step": Family("Last training step"),
    "target_step": Family("Step after which training ends"),
    "loss": Family("Loss of the last call"),
    "metric": Family("Figures of the last call by the names that the model gives them", ("metric",)),
    "examples_per_second": Family("Training rate of this task; the job's is the sum over its tasks"),
    "steps_total": Family("Steps that step_seconds_total is of, since the child started"),
    "step_seconds_total": Family(
        "Time of these steps: input (waiting for data), exchange (with other tasks, or waiting for them), "
        "compute (all else of a step), wait (between steps)",
        ("part",),
    ),
    "checkpoint_step": Family("From the chief: step of the newest complete checkpoint"),
    "checkpoint_timestamp_seconds": Family("From the chief: when that checkpoint was written, since 1970"),
    "checkpoint_size_bytes": Family("From the chief: its size"),
    "checkpoints_total": Family("Checkpoints that the child has written"),
    "checkpoint_pause_seconds_total": Family("Time for which training waited for checkpoints"),
    "checkpoint_write_seconds_total": Family("Time in which checkpoints were written, beside training"),
    "cpu_seconds_total": Family("Processor time of the container, or outside of one of the task's processes"),
    "memory_bytes": Family("Memory in use by the container without reclaimable cache, or by the task's processes"),
    "memory_limit_bytes": Family("Memory limit of the container"),
    "gpu_utilization_ratio": Family("Share of the last second in which the GPU computed", ("gpu", "uuid")),
    "gpu_memory_used_bytes": Family("Memory of the GPU in use", ("gpu", "uuid")),
    "gpu_memory_size_bytes": Family("Memory of the GPU", ("gpu", "uuid")),
}
"""The metrics by their names without the prefix. All have the labels job_name and task."""

_FIELDS = {
    "target_step": "steps",
    "loss": "loss",
    "examples_per_second": "examples_per_second",
    "steps_total": "steps_made",
    "checkpoints_total": "checkpoints",
    "checkpoint_pause_seconds_total": "seconds_saving",
    "checkpoint_write_seconds_total": "seconds_writing",
}
"""The field of a child's status that each metric is."""
_RATE = "examples_per_second"
_PARTS = {part: f"seconds_{part}" for part in ("input", "exchange", "compute", "wait")}

Sample: TypeAlias = "tuple[str, object, str, tuple[str, ...]]"
"""The name, the value, the task, and the values of further labels."""


def text(
    status: TaskStatus,
    workers: Mapping[str, ChildStatus],
    versions: Mapping[str, str],
    used: Usage | None = None,
    gpus: list[Gpu] | None = None,
) -> bytes:
    """All metrics in Prometheus' text format.

    Args:
        workers: the measurements of the coordinator, which is this task, by ps-worker.
    """
    families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
    samples = [
        ("build_info", 1, status.task, tuple(versions.get(name, "") for name in METRICS["build_info"].labels)),
        *_of_task(status),
        *(_of_job(status) if isinstance(status, JobStatus) else ()),
        *(sample for name, row in workers.items() for sample in _of_worker(name, row)),
        *(_of_usage(status.task, used) if used else ()),
        *(sample for gpu in gpus or () for sample in _of_gpu(status.task, gpu)),
    ]
    for name, value, task, more in samples:
        if (number := _number(value)) is not None:
            family = families.setdefault(name, _family(name))
            family.add_metric([status.job, task, *map(_fit, more)], number)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(list(families.values())))
    return bytes(generate_latest(registry))


class _Collector:
    def __init__(self, families: list[GaugeMetricFamily | CounterMetricFamily]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return [*self._families]


def _family(name: str) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    described = METRICS[name]
    return kind(f"trainer_{name}", described.help, labels=["job_name", "task", *described.labels])


def _of_task(status: TaskStatus) -> Iterator[Sample]:
    task = status.task
    for phase in get_args(Phase):
        yield "phase", int(status.phase == phase), task, (phase,)
    yield "generation", status.generation, task, ()
    yield "child_restarts_total", status.restarts, task, ()
    yield "step", status.step, task, ()
    for name, field in _FIELDS.items():
        # In the status of a job the rate is that of all tasks, which have samples of their own.
        if name == _RATE and isinstance(status, JobStatus):
            yield name, _of_child(status.tasks.get(task, ChildStatus()), field), task, ()
        else:
            yield name, _of_child(status, field), task, ()
    for part, field in _PARTS.items():
        yield "step_seconds_total", getattr(status, field), task, (part,)
    names = dict[str, object]()
    for name, value in status.figures.items():
        if name not in ("loss", "examples_per_second"):
            names.setdefault(_fit(name), value)
    for name, value in names.items():
        yield "metric", value, task, (name,)


def _of_job(status: JobStatus) -> Iterator[Sample]:
    for name, row in status.tasks.items():
        yield "task_up", int(row.state not in ("absent", "lost")), name, ()
        yield "task_slow", int(status.straggler is not None and status.straggler.task == name), name, ()
    for cause, count in status.restarts_by_cause.items():
        yield "restarts_total", count, status.task, (cause,)
    yield "refused_reports_total", sum(status.refused_reports.values()), status.task, ()
    yield "checkpoint_step", status.last_checkpoint, status.task, ()
    yield "checkpoint_timestamp_seconds", status.checkpoint_time, status.task, ()
    yield "checkpoint_size_bytes", status.checkpoint_bytes, status.task, ()


def _of_worker(task: str, row: ChildStatus) -> Iterator[Sample]:
    """The samples of a ps-worker, whose own supervisor knows nothing of its steps."""
    for name in ("loss", "examples_per_second", "steps_total"):
        yield name, _of_child(row, _FIELDS[name]), task, ()
    for part, field in _PARTS.items():
        yield "step_seconds_total", getattr(row, field), task, (part,)


def _of_child(status: ChildStatus, field: str) -> object:
    """A loss may be NaN here: Prometheus knows it, and an alert may be set on it."""
    return status.figures.get(field) if field in ("loss", "examples_per_second") else getattr(status, field)


def _of_usage(task: str, used: Usage) -> Iterator[Sample]:
    yield "cpu_seconds_total", used.cpu_seconds, task, ()
    yield "memory_bytes", used.memory, task, ()
    yield "memory_limit_bytes", used.memory_limit, task, ()


def _of_gpu(task: str, gpu: Gpu) -> Iterator[Sample]:
    labels = (str(gpu.number), gpu.uuid)
    yield "gpu_utilization_ratio", gpu.utilization, task, labels
    yield "gpu_memory_used_bytes", gpu.memory_used, task, labels
    yield "gpu_memory_size_bytes", gpu.memory_size, task, labels


def _number(value: object) -> float | None:
    """None of what is no number; what a child sends is not validated."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _fit(name: str) -> str:
    """A name of the user's as the value of a label; the client escapes quotes."""
    return _UNFIT.sub("_", name)[:_LONGEST_NAME]
