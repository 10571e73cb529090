"""After the end of the job: the tasks that have not been notified, and how long the chief waits for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trainer.job.errors import Exit
from trainer.protocol.log_lines import log_line
from trainer.supervisor.rendezvous.state_machine import Rendezvous

if TYPE_CHECKING:
    from trainer.supervisor.task.agent import Agent

LOG_AFTER_SECONDS = 2.0
"""Time after the end before the log names the tasks that have not been notified."""
LAST_ANSWERS_SECONDS = 0.3
LONGEST_SECONDS = 120.0
"""A chief that waits holds its node, and its Job shows no end; a task that returns later waits in vain."""


async def until_all_are_notified(rendezvous: Rendezvous, agent: Agent) -> None:
    """Waits, while the chief answers reports, for all tasks that may still report."""
    begun, logged = agent.clock(), False
    chief = rendezvous.tasks.members.get(agent.task.name)
    if chief is not None:
        chief.notified = True
    while absent := unnotified(rendezvous, now := agent.clock(), agent.leaving_since is not None):
        if now - begun > LOG_AFTER_SECONDS and not logged:
            seconds = patience(rendezvous, agent.leaving_since is not None)
            log_line(f"the job is over; waiting for {', '.join(absent)} to be notified, at most {seconds:g} s")
            logged = True
        await agent.wait_for_change(0.1)
    await asyncio.sleep(LAST_ANSWERS_SECONDS)


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
            if expected and now - rendezvous.waiting.begun <= min(rendezvous.spec.deadlines.start, LONGEST_SECONDS)
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
