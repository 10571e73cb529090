"""The end of a job with a program, in a task that is not the chief: its program may still run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trainer.job.errors import Exit
from trainer.protocol.log_lines import LOG_SECONDS, log_line

if TYPE_CHECKING:
    from trainer.supervisor.agent import Agent

BY_ITSELF_SECONDS = 3.0
"""Time for a program to end by itself after the chief's: those that train together end almost together."""
LOOK_SECONDS = 0.5


async def end(agent: Agent) -> Exit:
    """Waits for the program to end by itself, then stops it. Returns the exit code of a job that has succeeded."""
    child, name, begun, said = agent.running, agent.task.name, time.monotonic(), False
    seconds = agent.spec.deadlines.evaluation if agent.task.type == "evaluator" else BY_ITSELF_SECONDS
    while child is not None and child.alive and agent.task.type != "ps" and agent.leaving_since is None:
        waited = time.monotonic() - begun
        if waited > seconds:
            break
        if waited > LOG_SECONDS and not said:
            said = True
            log_line(f"{name}: the job is done; its program may run for {seconds:g} s more (deadlines.evaluation)")
        await agent.look_after_children()
        await agent.wait_for_change(LOOK_SECONDS)
    if child is None or not child.alive:
        failed = agent.task.type == "evaluator" and child is not None and child.result is None
        return Exit.EVALUATION if failed and agent.leaving_since is None else Exit.OK
    if agent.task.type != "ps":
        log_line(f"{name}: the job is done, and its program still runs: it is stopped")
    await child.dismiss()
    return Exit.OK
