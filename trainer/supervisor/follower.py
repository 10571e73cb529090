"""The supervisor of a task that is not the chief: reports to the chief and executes the replies until the job ends."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from aiohttp import ClientSession

from trainer.job.cluster import Task
from trainer.job.errors import Exit
from trainer.model_dir import result
from trainer.protocol.log_lines import LOG_SECONDS, log_error, log_line
from trainer.protocol.reports import Reply, Report
from trainer.supervisor import peers, program_end, scoring

if TYPE_CHECKING:
    from trainer.supervisor.agent import Agent

RETRY_SECONDS = 0.2
GONE_SECONDS = 3.0
"""Chief silence after which an existing result.json means that it left because the job is complete."""


async def follow(agent: Agent, session: ClientSession) -> Exit:
    """Runs until the chief replies that the job is over, this task may leave, or the chief is lost."""
    known, seen, logged = 0, agent.clock(), agent.clock()
    asked: float | None = None  # time of the oldest unanswered report, including time in which this process was stopped
    while True:
        asked = asked or time.monotonic()
        report = agent.report()
        try:
            reply = await _exchange(agent, session, report, known)
        except ConnectionError as error:
            now = agent.clock()
            if (code := await _without_chief(agent, now - seen, known, error)) is not None:
                return code
            if now - logged > LOG_SECONDS:
                log_line(f"{agent.task.name} is waiting for the chief ({error}), {now - seen:.0f} s so far")
                logged = now
            await agent.wait_for_change(RETRY_SECONDS)
            continue
        if reply is None:
            known = 0
            continue
        seen, known = agent.clock(), reply.version
        if reply.phase in ("done", "failed"):
            return await _end(agent, reply)
        if (waited := time.monotonic() - asked) > agent.spec.deadlines.task_lost:
            _end_child_without_tickets(agent, waited)
        asked = None
        scores = agent.task.type == "evaluator" and agent.spec.runs.checkpoints
        await (scoring.keep_scoring(agent, reply) if scores else agent.act(reply))
        if report.leaving and _may_leave(agent, reply):
            return Exit.STOPPED
        if agent.leaving_since is not None and not report.leaving:
            known = 0  # makes the chief answer at once: it must be notified before this task leaves


async def _exchange(agent: Agent, session: ClientSession, report: Report, known: int) -> Reply | None:
    """Sends a report; returns the reply, or None if something changed here first: then there is a newer report.

    Raises:
        ConnectionError: the chief does not reply.
    """
    chief = agent.task.control_address(*agent.task.chief)
    asking = asyncio.create_task(peers.send_report(session, chief, report, known, agent.secret))
    change = asyncio.create_task(agent.changed.wait())
    await asyncio.wait({asking, change}, return_when=asyncio.FIRST_COMPLETED)
    agent.changed.clear()
    change.cancel()
    if asking.done():
        return asking.result()
    asking.cancel()
    await asyncio.wait({asking})
    return None


async def _without_chief(agent: Agent, seconds: float, known: int, error: ConnectionError) -> Exit | None:
    """After this many seconds without a reply: this task's exit code, or None if it is to try again."""
    if agent.leaving_since is not None:
        return Exit.STOPPED
    await agent.look_after_children()
    task, deadlines = agent.task, agent.spec.deadlines
    # This task may have been killed at the very end, when the chief no longer waits for restarted tasks.
    job = (agent.spec, task.counts, agent.workload_digest)
    # In a thread: the volume may be slow.
    if seconds > GONE_SECONDS and (found := await asyncio.to_thread(result.completed, *job)):
        log_line(f"{task.name}: the chief is gone, and the job is complete")
        return await _end(agent, Reply("done", 1, 0, known, step=found.steps))
    if seconds > deadlines.chief_lost:
        log_error(_chief_lost(task, deadlines.chief_lost, str(error)))
        return Exit.CHIEF_LOST
    return None


def _end_child_without_tickets(agent: Agent, seconds: float) -> None:
    """Replaces a ps-worker's child after a long silence: the chief may have reassigned the steps that it holds."""
    child = agent.running
    if child is not None and agent.spec.runs.takes_orders and agent.task.type in agent.spec.traits.restart_alone:
        child.kill(f"no contact with the chief for {seconds:.0f} s")


def _chief_lost(task: Task, seconds: float, why: str) -> str:
    name = "{}:{}".format(*task.chief)
    return (
        f"{task.name} has had no reply from its chief ({name}) for {seconds:g} s "
        f"(deadlines.chief_lost): {why}; is it running, and is its address in TF_CONFIG right?"
    )


async def _end(agent: Agent, reply: Reply) -> Exit:
    agent.phase = reply.phase
    if reply.phase == "failed":
        (log_line if reply.code == Exit.STOPPED else log_error)(reply.message)
    elif agent.spec.program:
        return await program_end.end(agent)
    elif agent.task.type == "evaluator":
        return await scoring.score_last(agent, reply)
    return Exit(reply.code)


def _may_leave(agent: Agent, reply: Reply) -> bool:
    if agent.leaving_since is None:
        return False
    child = agent.running
    over = reply.phase != "running" or child is None or not child.alive
    return agent.restarts_alone or over or agent.stop_deadline_passed
