"""The lines that a task prints. Does not need TensorFlow: ps and ps-workers print them too."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import TextIO

from trainer import host
from trainer.job.cluster import Task
from trainer.job.derived import batch_sizes, computing_tasks
from trainer.job.messages import digits
from trainer.job.spec import JobSpec

FAILURE_MARK = "TRAINER_FAILURE_MARK"
"""The variable with which `trainer local` gives its tasks the mark of a line that reports a failure. A program, which
does not get it, may print any other line."""
STOPPED_PREFIX = "stopped by a signal; "
"""Prefix of the chief's line about a requested stop, which the other tasks repeat."""
LOG_SECONDS = 30.0
"""Interval at which a waiting task logs what it waits for."""


def first_line(spec: JobSpec, task: Task, versions: dict[str, str]) -> str:
    """A task's first line, printed before it contacts other tasks."""
    group = spec.tasks.of(task.type)
    listed = " ".join(f"{name}={version}" for name, version in versions.items())
    place = f" ({task.given} of TF_CONFIG, which names no chief)" if task.given else ""
    return f"{task.name}{place} of {spec.name} has started: {listed} cpus={host.cpus(group.cpu)} gpus={group.gpus}"


def start_line(spec: JobSpec, task: Task, replicas_in_sync: int, step: int) -> str:
    """Proof that the cluster formed: independent tasks could not print this."""
    counts = task.counts
    if not spec.traits.trains:
        return f"task={task.name} strategy={spec.strategy} job_name={spec.job_name} servers={counts['worker']}"
    global_batch, per_replica = batch_sizes(spec, counts)
    return (
        f"task={task.name} strategy={spec.strategy} workers={computing_tasks(spec, counts)} ps={counts.get('ps', 0)} "
        f"replicas_in_sync={replicas_in_sync} global_batch={global_batch} per_replica={per_replica} resume_step={step}"
    )


def progress_line(
    step: int, total: int, figures: dict[str, float], workers: dict[str, dict[str, float]] | None = None
) -> str:
    """Progress of the job; under parameter_server with each worker's batch accuracy."""
    text = f"step {step}/{total} " + " ".join(f"{name}={digits(value)}" for name, value in figures.items())
    accuracies = [f"{name}={digits(row['accuracy'])}" for name, row in (workers or {}).items() if "accuracy" in row]
    return f"{text} | batch accuracy {' '.join(accuracies)}" if accuracies else text


readers: list[Callable[[str], None]] = []
"""Called with each line that this process logs, for those who look at the job's page."""


def log_line(text: str) -> None:
    for read in readers:
        read(text)
    _print(text, sys.stdout)


def log_traceback(error: BaseException) -> None:
    """Prints a traceback to stderr, which for a child is its log. A full disk there does not hide the error."""
    with contextlib.suppress(OSError):
        traceback.print_exception(error)


def log_error(text: str) -> None:
    mark = os.environ.get(FAILURE_MARK, "")
    for line in text.split("\n"):
        for read in readers:
            read(f"trainer: {line}")
        _print(f"{mark}trainer: {line}", sys.stderr)


def _print(text: str, stream: TextIO) -> None:
    # The reader may have exited, or the disk be full; the checkpoint is still worth writing.
    with contextlib.suppress(OSError):
        print(text, file=stream, flush=True)
