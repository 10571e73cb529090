"""After the end of the job: the tasks that have not been notified, and how long the chief waits for them."""

from __future__ import annotations

from trainer.job.errors import Exit
from trainer.supervisor.rendezvous import Rendezvous

LONGEST_SECONDS = 120.0
"""A chief that waits holds its node, and its Job shows no end; a task that returns later waits in vain."""


def unnotified(rendezvous: Rendezvous, now: float, leaving: bool = False) -> list[str]:
    """Tasks that may still report and have not been notified that the job ended.

    A task that was lost or asked to stop may return, for example as a new pod: it is expected for as long as it
    would wait for its chief, at most LONGEST_SECONDS. The same holds for a task that has never reported, if the job
    ended that early.

    Args:
        leaving: the chief itself was asked to stop, and so were all tasks: wait only for those that are present.
    """
    expected, seconds = _expected(rendezvous, leaving), patience(rendezvous, leaving)
    tasks, members = rendezvous.tasks, rendezvous.tasks.members
    never = [name for name in tasks.required if name not in members and name != tasks.chief]
    return [
        *(
            never
            if expected and now - rendezvous.begun <= min(rendezvous.spec.deadlines.start, LONGEST_SECONDS)
            else []
        ),
        *(
            name
            for name, member in members.items()
            if not member.notified and now - member.seen <= seconds and (expected or not member.report.leaving)
        ),
    ]


def patience(rendezvous: Rendezvous, leaving: bool) -> float:
    """Seconds for which the chief waits for an unnotified task."""
    deadlines = rendezvous.spec.deadlines
    return min(deadlines.chief_lost, LONGEST_SECONDS) if _expected(rendezvous, leaving) else deadlines.task_lost


def _expected(rendezvous: Rendezvous, leaving: bool) -> bool:
    """Whether absent tasks may still report."""
    return not leaving and rendezvous.code not in (Exit.STOPPED, Exit.MISSING, Exit.MISMATCH)
