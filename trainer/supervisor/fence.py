"""The end of a process whose place another one has taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.supervisor.agent import Agent


def kill_children(agent: Agent) -> None:
    """Ends the task's children at once: what they would save in the time of a stop could overwrite the files of the
    other process."""
    for child in (agent.running, agent.standby.child):
        if child is not None:
            child.dismissed = True
            child.kill()
