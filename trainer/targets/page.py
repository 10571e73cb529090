"""Where the page of a job is: on this machine, behind a tunnel, or in the files of a job that has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.spec import JobSpec
from trainer.page import files
from trainer.protocol.status import JobStatus
from trainer.targets.base import ContainerState, JobOverview, Page
from trainer.targets.outage import Outage
from trainer.targets.tunnel import Tunnel

CHIEF_START_SECONDS = 120.0
"""How long a chief may take to start."""
CHIEF_POLL_SECONDS = 1.0
COPY = "copy its model_dir to this machine, and give that folder to `trainer ui`"
NONE = "the job has no page (page: none in its spec, or an older trainer in its image)"


def behind(
    tunnel: Tunnel,
    ask: Callable[[], JobOverview],
    say: Callable[[str], None],
    spec: JobSpec | None = None,
    copy: str = COPY,
) -> Page:
    """The page of a job elsewhere, once its chief runs; of one that has ended, the files if they are on this machine.

    Args:
        say: called with what it waits for, when that changes.
        copy: how to get the files of a job that has ended.

    Raises:
        TrainerError: Exit.TARGET, if the job has ended, or its chief does not run in time.
    """
    deadline, said, outage, overview = time.monotonic() + CHIEF_START_SECONDS, "", Outage(say), ask()
    while not isinstance(overview.job, JobStatus):
        if overview.over:
            return _ended(overview, spec, copy)
        why = _waits_for(overview)
        if time.monotonic() > deadline:
            raise TrainerError(
                f"{overview.name}: its chief does not run after {CHIEF_START_SECONDS:g} s: {why}", Exit.TARGET
            )
        if why != said:
            say(f"waiting for the chief: {why}")
            said = why
        time.sleep(CHIEF_POLL_SECONDS)
        overview = outage.ask(ask, overview)
        if outage.present:  # nobody knows what the chief does meanwhile
            deadline = time.monotonic() + CHIEF_START_SECONDS
    return Page(tunnel=tunnel)


def _ended(overview: JobOverview, spec: JobSpec | None, copy: str) -> Page:
    if spec is not None and spec.model_dir and files.exists(spec.model_dir):
        return Page(folder=spec.model_dir)
    raise TrainerError(
        f"{overview.name}: has ended ({overview.phase}), and its files are in its volume: {copy}", Exit.TARGET
    )


def _waits_for(overview: JobOverview) -> str:
    """The reasons of tasks that do not run, the chief's first, or the phase."""
    reasons = [f"{name} {_state(row)}" for name, row in overview.tasks.items()]
    return overview.unreadable or (reasons[0] if reasons else overview.phase)


def _state(row: ContainerState) -> str:
    if row.state == "running":
        return "does not answer yet"
    return f"is {row.state}{f': {row.reason}' if row.reason else ''}"


def of_files(folder: str) -> Page:
    """The page of a model_dir on this machine.

    Raises:
        UserError: there is nothing to show.
    """
    if files.exists(folder):
        return Page(folder=folder)
    if not Path(folder).is_dir():
        raise UserError(f"{folder}: there is no such folder; give a job spec, a job's name, or a model_dir")
    raise UserError(f"{folder}: no job has left anything there that a page could show; `trainer local` starts one")
