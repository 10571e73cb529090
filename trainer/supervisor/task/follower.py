"""The supervisor of a task that is not the chief: reports to the chief and executes the replies until the job ends."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from aiohttp import ClientSession

from trainer import clocks, host, ids
from trainer.job import environment
from trainer.job.cluster import Task
from trainer.job.errors import Exit, TrainerError
from trainer.job.spec import JobSpec
from trainer.model_dir import result
from trainer.protocol.facts import Cause, Loss, failure_of
from trainer.protocol.log_lines import LOG_SECONDS, log_error, log_line
from trainer.protocol.reports import Reply, Report
from trainer.supervisor.control_port import peers
from trainer.supervisor.rendezvous.admission import UNSTARTED
from trainer.supervisor.task import program_end, scoring, task_report

if TYPE_CHECKING:
    from trainer.supervisor.task.agent import Agent

RETRY_SECONDS = 0.2
SLOWEST_RETRY_SECONDS = 2.0
EVALUATOR_SECONDS = 120.0
"""An evaluator waits no longer for a chief that was lost: it mounts the chief's volume, which the chief may need on
another node. The evaluator's own replacement follows the chief."""
UNSTARTED_SECONDS = 10.0
"""Time for a task that cannot start to report that: its chief may have ended for the same reason."""
GONE_SECONDS = 3.0
"""Chief silence after which an existing result.json means that it left because the job is complete."""


async def follow(agent: Agent, session: ClientSession) -> Exit:
    """Runs until the chief replies that the job is over, this task may leave, or the chief is lost."""
    term = 0  # the highest that a chief has replied with
    generation = 0  # the newest: a chief that begins after the job's end knows none
    known, seen, logged, heard = 0, agent.clock(), agent.clock(), False
    asked: float | None = None  # time of the oldest unanswered report, including time in which this process was stopped
    while True:
        asked = asked or clocks.monotonic()
        report = task_report.make_report(agent)
        try:
            reply = await _exchange(agent, session, report, known)
            if reply is not None and reply.term and reply.term < term:  # without a term: it cannot use model_dir
                raise ConnectionError("a chief replies that has lost its place to another one")
        except ConnectionError as error:
            now = agent.clock()
            if (code := await _without_chief(agent, now - seen, generation, heard, error)) is not None:
                return code
            if now - logged > LOG_SECONDS:
                log_line(f"{agent.task.name} is waiting for the chief ({error}), {now - seen:.0f} s so far")
                logged = now
            # The longer it waits, the less often it asks: a thousand tasks ask the cluster's DNS for one name.
            await agent.wait_for_change(min(max(RETRY_SECONDS, (now - seen) / 20), SLOWEST_RETRY_SECONDS))
            continue
        if reply is None:
            known = 0
            continue
        seen, known, heard, term = agent.clock(), reply.version, True, max(term, reply.term)
        generation = max(generation, reply.generation)
        if reply.phase in ("done", "failed"):
            return _exit_code(await _end(agent, replace(reply, generation=generation)))
        if (waited := clocks.monotonic() - asked) > agent.spec.deadlines.task_lost:
            _end_child_without_tickets(agent, waited)
        asked = None
        agent.stacks.ask(reply.stacks, agent.running)
        agent.logs.want(reply.lines_after)
        scores = agent.task.type == "evaluator" and agent.spec.runs.checkpoints
        await (scoring.keep_scoring(agent, reply) if scores else agent.act(reply))
        if report.leaving and _may_leave(agent, reply):
            return Exit.STOPPED
        if agent.leaving_since is not None and not report.leaving:
            known = 0  # makes the chief answer at once: it must be notified before this task leaves


async def report_failure(spec: JobSpec, task: Task, secret: bytes, error: TrainerError) -> Exit:
    """Reports why this task cannot start, so that the job ends with that reason, and the chief does not wait for a task
    that Kubernetes starts again and again; returns this task's exit code."""
    report = Report(
        task=task.name,
        incarnation=ids.new(),
        cluster=task.digest,
        spec=spec.digest(),
        workload=UNSTARTED,
        versions={},
        started=clocks.wall() - host.process_age(),
        loss=failure_of(error),
    )
    end = clocks.monotonic() + UNSTARTED_SECONDS
    async with peers.client() as session:
        while clocks.monotonic() < end:
            try:
                reply = await peers.send_report(session, task.control_address(*task.chief), report, 0, secret)
            except ConnectionError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except TrainerError:
                break  # its secret is not the chief's
            return _exit_code(error.code) if reply.phase == "failed" else error.code
    return error.code


def _exit_code(code: Exit) -> Exit:
    """Of a task whose end is not the job's: the Job that runs it would start it again after a failure. It has to after
    a stop, for which all tasks come back, and for a task whose place another process has."""
    return Exit.OK if environment.FOLLOWS in os.environ and not code.retryable else code


async def _exchange(agent: Agent, session: ClientSession, report: Report, known: int) -> Reply | None:
    """Sends a report; returns the reply, or None if something changed here first: then there is a newer report.

    Raises:
        ConnectionError: the chief does not reply.
    """
    chief = agent.task.control_address(*agent.task.chief)
    hold = peers.hold_seconds(len(agent.task.members()), agent.spec.deadlines.task_lost)
    asking = asyncio.create_task(peers.send_report(session, chief, report, known, agent.secret, hold))
    change = asyncio.create_task(agent.changed.wait())
    left = agent.seconds_to_stop
    await asyncio.wait({asking, change}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
    changed = agent.changed.is_set()
    agent.changed.clear()
    change.cancel()
    if asking.done():
        return asking.result()
    asking.cancel()
    await asyncio.wait({asking})
    if not asking.cancelled():
        asking.exception()  # of one that failed meanwhile: asyncio logs an exception that is never read
    if left is not None and not changed:
        raise ConnectionError("no reply until deadlines.stop")
    return None


def _patience(agent: Agent, heard: bool) -> tuple[float, str]:
    """How long to wait for the chief, and the deadline that limits it: its pod may come later than this task's."""
    deadlines = agent.spec.deadlines
    if not heard:
        return deadlines.start, "deadlines.start"
    if agent.task.type == "evaluator" and deadlines.chief_lost > EVALUATOR_SECONDS:
        return EVALUATOR_SECONDS, "an evaluator does not wait longer"
    return deadlines.chief_lost, "deadlines.chief_lost"


async def _without_chief(
    agent: Agent, seconds: float, generation: int, heard: bool, error: ConnectionError
) -> Exit | None:
    """After this many seconds without a reply: this task's exit code, or None if it is to try again."""
    if agent.leaving_since is not None:
        return Exit.STOPPED
    await agent.look_after_children()
    task = agent.task
    # This task may have been killed at the very end, when the chief no longer waits for restarted tasks.
    job = (agent.spec, task.counts, agent.workload_digest)
    # In a thread: the volume may be slow.
    if seconds > GONE_SECONDS and (found := await asyncio.to_thread(result.completed, *job)):
        log_line(f"{task.name}: the chief is gone, and the job is complete")
        return await _end(agent, Reply("done", max(1, generation), 0, 0, step=found.steps))
    limit, deadline = _patience(agent, heard)
    if seconds > limit:
        log_error(_chief_lost(task, limit, deadline, str(error)))
        # A pod that came after the job's end would be replaced and wait as long: the chief's Job has the outcome.
        return Exit.OK if not heard and environment.FOLLOWS in os.environ else Exit.CHIEF_LOST
    return None


def _end_child_without_tickets(agent: Agent, seconds: float) -> None:
    """Replaces a ps-worker's child after a long silence: the chief may have reassigned the steps that it holds."""
    child = agent.running
    if child is not None and agent.spec.runs.takes_orders and agent.task.type in agent.spec.traits.restart_alone:
        child.kill(Loss(Cause.NO_CONTACT, seconds=seconds))


def _chief_lost(task: Task, seconds: float, deadline: str, why: str) -> str:
    name = "{}:{}".format(*task.chief)
    return (
        f"{task.name} has had no reply from its chief ({name}) for {seconds:g} s "
        f"({deadline}): {why}; is it running, and is its address in TF_CONFIG right?"
    )


async def _end(agent: Agent, reply: Reply) -> Exit:
    agent.phase = reply.phase
    if reply.phase == "failed":
        (log_line if reply.code == Exit.STOPPED else log_error)(reply.message)
        if reply.code == Exit.REPLACED:
            agent.kill_children()
    elif agent.spec.program:
        return await program_end.end(agent, reply.generation)
    elif agent.task.type == "evaluator":
        return await scoring.score_last(agent, reply)
    return Exit(reply.code)


def _may_leave(agent: Agent, reply: Reply) -> bool:
    if agent.leaving_since is None:
        return False
    child = agent.running
    over = reply.phase != "running" or child is None or not child.alive
    return agent.restarts_alone or over or agent.stop_deadline_passed
