"""The warm standby of a task: a second child, with TensorFlow loaded, that takes over when the first one dies."""

from __future__ import annotations

from pathlib import Path

from trainer import clocks
from trainer.job.cluster import Task
from trainer.job.spec import JobSpec
from trainer.protocol.log_lines import log_line
from trainer.supervisor.children.child import Child

STEADY_SECONDS = 10.0
"""How long training runs before a standby is started: loading TensorFlow takes CPU time."""
FAILURES = 3
"""Consecutive failures, each followed by a longer pause, after which no standby is started: it may lack memory."""


class Standby:
    """Decides when there is to be one. The first child of all is kept here too, until its order."""

    def __init__(self, spec: JobSpec, task: Task, log: Path) -> None:
        self._task, self._log = task, log
        self._ever = spec.warm_standby and task.type != "evaluator" and spec.runs.takes_orders
        self._failures, self._not_before = 0, 0.0
        self.child: Child | None = None

    @property
    def warm(self) -> bool:
        return self.child is not None and self.child.warm

    def due(self, first_step_at: float | None) -> bool:
        """Whether one is to be started, beside a child whose generation made its first step at that time."""
        now = clocks.monotonic()
        steady = first_step_at is not None and now - first_step_at > STEADY_SECONDS
        again = self._failures < FAILURES and now >= self._not_before
        return self._ever and steady and again and self.child is None

    def take(self) -> Child | None:
        """Hands it over, if there is one that lives."""
        child, self.child = self.child, None
        if child is None or not child.alive:
            return None
        self._failures = 0
        return child

    def lost(self, child: Child, *, training: bool) -> None:
        """It has ended. That is a failure if the task has a child that trains, and it was not dismissed."""
        self.child = None
        if child.dismissed or not training:
            return
        self._failures += 1
        self._not_before = clocks.monotonic() + STEADY_SECONDS * 4**self._failures
        log_line(f"{self._task.name}: standby lost ({child.loss()}); its log: {self._log}")
        if self._failures == FAILURES:
            log_line(f"{self._task.name}: {FAILURES} standbys were lost in a row; training continues without one")

    def too_much(self) -> None:
        """The memory does not hold two children: there will be no more standbys."""
        if self.child is not None and self._failures < FAILURES:
            self._failures = FAILURES
            log_line(f"{self._task.name}: no more standbys are started: there is not enough memory for two children")
