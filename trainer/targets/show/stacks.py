"""The stacks of a job's tasks as text."""

from __future__ import annotations

from collections.abc import Iterator

from trainer.job.errors import UserError
from trainer.model_dir.stacks import Group, Stacks
from trainer.protocol.stacks import STATES

NAMED = 8
"""How many tasks of a group a line names."""


def describe(stacks: Stacks, task: str | None = None) -> Iterator[str]:
    """Lines: the verdict, and the stacks of each group of tasks.

    Raises:
        UserError: there is no such task.
    """
    groups = [group for group in stacks.groups if task is None or task in group.tasks]
    if task is not None and not groups:
        known = ", ".join(name for group in stacks.groups for name in group.tasks)
        raise UserError(f"TASK: {task!r}: no such task has answered; there are {known or 'none'}")
    if stacks.text:
        yield stacks.text
    for group in groups:
        yield ""
        yield f"{_names([task] if task else group.tasks)}: {STATES.get(group.state) or group.doing or 'running'}"
        yield from _threads(group)


def _names(tasks: list[str]) -> str:
    rest = len(tasks) - NAMED
    return f"{', '.join(tasks[:NAMED])} and {rest} more" if rest > 0 else ", ".join(tasks)


def _threads(group: Group) -> Iterator[str]:
    """The main thread first."""
    for number, frames in enumerate(reversed(group.threads)):
        yield f"  {'main thread' if number == 0 else 'another thread'}"
        for frame in frames:
            yield f"  {'->' if frame.theirs else '  '} {frame}"
