"""Refuses the name of a task that a job does not have."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.job.cluster import tasks_of
from trainer.job.errors import UserError
from trainer.job.messages import nearest
from trainer.job.spec import JobSpec

TRACK = "track"
"""What sends a job to MLflow has logs as a task does."""
NAMED = 12
"""How many tasks a message names."""


def names(spec: JobSpec) -> list[str]:
    """All that has logs."""
    return [*(each.name for each in tasks_of(spec)), *([TRACK] if spec.tracking else [])]


def require(task: str, job: str, names: Sequence[str]) -> None:
    """
    Raises:
        UserError: the job has no such task.
    """
    if task not in names:
        rest = len(names) - NAMED
        listed = f"{', '.join(names[:NAMED])}{f' and {rest:,} more' if rest > 0 else ''}"
        raise UserError(f"task: {task!r}: must be TYPE:INDEX of a task of {job}: {listed}{nearest(task, names)}")
