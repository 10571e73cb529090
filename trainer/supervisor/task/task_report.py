"""Task view: a task's own state, as reported to the chief and as shown by its /status."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from trainer.protocol.child import ChildStatus
from trainer.protocol.reports import Report
from trainer.protocol.status import TaskStatus

if TYPE_CHECKING:
    from trainer.supervisor.task.agent import Agent


def make_report(agent: Agent) -> Report:
    """The task's next report to the chief."""
    child = agent.running
    agent.reports += 1
    first_line, lines = agent.logs.report()
    return Report(
        task=agent.task.name,
        incarnation=agent.incarnation,
        cluster=agent.task.digest,
        spec=agent.spec_digest,
        workload=agent.workload_digest,
        versions=agent.versions,
        started=agent.began,
        number=agent.reports,
        generation=child.generation if child and child.alive else 0,
        ended_early=agent.ended_early,
        finished=child.generation if child and child.result is not None else 0,
        loss=agent.loss,
        leaving=agent.leaving_since is not None,
        restarts=agent.restarts,
        restarted_for=agent.restarted_for,
        standby=agent.standby.warm,
        gradients=agent.gradients,
        hangs=agent.stacks.hangs,
        stacks=agent.stacks.taken,
        used=agent.used,
        lines=lines,
        first_line=first_line,
        status=_status(agent),
    )


def task_status(agent: Agent) -> TaskStatus:
    """The task's own view, for /status."""
    child = agent.running
    return TaskStatus(
        job=agent.spec.name,
        task=agent.task.name,
        strategy=agent.spec.strategy,
        phase=agent.phase,
        generation=child.generation if child else 0,
        restarts=agent.restarts,
        standby=agent.standby.warm,
        **vars(_status(agent)),
    )


def _status(agent: Agent) -> ChildStatus:
    """The status of the running child, and what its supervisor adds."""
    known = agent.running.current() if agent.running else ChildStatus()
    return replace(known, pid=os.getpid(), copying=agent.copying or None)
