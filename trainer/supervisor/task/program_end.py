"""The end of a job with a program, in a task that is not the chief: its program may still run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer import clocks
from trainer.job.errors import Exit
from trainer.model_dir import result
from trainer.protocol.log_lines import LOG_SECONDS, log_error, log_line

if TYPE_CHECKING:
    from trainer.supervisor.task.agent import Agent

BY_ITSELF_SECONDS = 3.0
"""Time for a program to end by itself after the chief's: those that train together end almost together."""
PROGRAM_POLL_SECONDS = 0.5


async def end(agent: Agent, generation: int) -> Exit:
    """Waits for the program to end by itself, then stops it. Returns the exit code of a job that has succeeded."""
    name, begun, said = agent.task.name, clocks.monotonic(), False
    evaluates = agent.task.type == "evaluator"
    seconds = agent.spec.deadlines.evaluation if evaluates else BY_ITSELF_SECONDS
    while agent.task.type != "ps" and agent.leaving_since is None and (_runs(agent) or _may_run_again(agent)):
        waited = clocks.monotonic() - begun
        if waited > seconds:
            break
        if waited > LOG_SECONDS and not said:
            said = True
            log_line(f"{name}: the job is done; its program may run for {seconds:g} s more (deadlines.evaluation)")
        if not _runs(agent):
            await agent.go_again(generation, 0)
        await agent.look_after_children()
        await agent.wait_for_change(PROGRAM_POLL_SECONDS)
    child = agent.running
    if child is not None and child.alive:
        if agent.task.type != "ps":
            log_line(f"{name}: the job is done, and its program still runs: it is stopped")
        await child.dismiss()
    elif evaluates and agent.has_failed and agent.leaving_since is None:
        why = agent.not_started or (str(child.loss()) if child else "")
        warning = f"{name}: its program {why}"
        result.set_warning(agent.spec.directory, name, warning)
        log_error(f"{warning}; the result of the training is valid")
        return Exit.EVALUATION
    return Exit.OK


def _runs(agent: Agent) -> bool:
    return agent.running is not None and agent.running.alive


def _may_run_again(agent: Agent) -> bool:
    """Whether an evaluator's program has failed and is started again: the last checkpoint may still be scored."""
    return agent.task.type == "evaluator" and agent.has_failed and agent.stillborn <= agent.spec.max_restarts
