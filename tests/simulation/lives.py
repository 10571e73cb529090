"""What the auditor needs more than once: the lives of supervisors and children, and what disturbed them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any, TypeAlias

from tests.simulation.trace import (
    AskedToStop,
    CheckpointWritten,
    ChildEnded,
    ChildOrdered,
    ChildStarted,
    Exited,
    Fault,
    History,
    Killed,
    Logged,
    Started,
    StepMade,
    Wrote,
)
from trainer.job.derived import restarts_alone

EPSILON = 1e-6
"""Events of one moment are in one order in one history and in another order in another."""
ORPHAN = 2.0
"""The children of a supervisor that was killed end within this time: trace.py, Killed."""
LEASE_READ = 2.0
"""docs/clusters.md, Lost nodes: a chief reads the lease every 2 s."""
NOTICE = 5.0
"""What messages, the start of a process and the end of a child take beside a documented time. The documents name no
figure; docs/architecture.md, Processes: a report is held for up to a second."""

NETWORK = frozenset(("cut", "slow", "lose", "double", "reorder"))
AWAY = NETWORK | {"freeze", "zombie", "host"}
"""Faults by which a task cannot be reached, or is late."""
DISK = frozenset(("disk full", "disk read-only", "disk slow"))
HARMLESS = frozenset(("garbage",))
"""docs/security.md, The secret of a job: no stranger can end a job, take a task's place or send it back."""

Line: TypeAlias = str


def say(at: float, task: str, text: str) -> Line:
    return f"{at:.1f} s: {task}: {text}"


@dataclass(slots=True)
class Process:
    number: int
    task: str
    run: str
    start: float
    end: float = inf
    code: int | None = None
    """None as long as it runs, and if it was killed."""
    killed: bool = False
    asked: float = inf
    """When it was asked to stop for the first time."""
    ordered: float = inf
    """When a child of it was ordered for the first time."""


@dataclass(slots=True)
class Child:
    number: int
    process: Process
    start: float
    orders: list[ChildOrdered] = field(default_factory=list)
    end: float = inf
    code: int | None = None
    by: str = ""


@dataclass(slots=True)
class Lives:
    history: History
    chief: str
    """The task that leads: a worker if there is no chief."""
    alone: frozenset[str]
    """Tasks whose child is restarted without the others."""
    members: tuple[str, ...]
    """The tasks of the cluster: all but the evaluator."""
    processes: dict[int, Process] = field(default_factory=dict)
    of_task: dict[str, list[Process]] = field(default_factory=dict)
    children: dict[int, Child] = field(default_factory=dict)
    orders: list[ChildOrdered] = field(default_factory=list)
    generations: dict[int, list[ChildOrdered]] = field(default_factory=dict)
    """The orders of each generation, without those of tasks that restart alone, in the order of their first ones."""
    steps: list[StepMade] = field(default_factory=list)
    chief_steps: list[StepMade] = field(default_factory=list)
    checkpoints: list[CheckpointWritten] = field(default_factory=list)
    wrote: list[Wrote] = field(default_factory=list)
    logged: list[Logged] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    lie: bool = False
    """Whether the chief's child lied: then nobody knows which steps there were."""

    @property
    def trains(self) -> bool:
        """Whether trainer's own loop makes the steps and the checkpoints."""
        spec = self.history.spec
        return spec.traits.trains and not spec.program

    @property
    def target(self) -> int | None:
        """The last step of the job, if the documents tell it."""
        train = self.history.spec.train
        if not self.trains or train.epochs is not None:
            return None
        return train.steps or 1000  # docs/spec.md, train

    def faults_of(self, tasks: Iterable[str], kinds: frozenset[str] | None = None) -> Iterator[Fault]:
        for fault in self.faults:
            if (kinds is None or fault.kind in kinds) and (not fault.task or fault.task in tasks):
                yield fault

    def disturbed(self, begin: float, end: float, tasks: Iterable[str], kinds: frozenset[str] | None = None) -> bool:
        """Whether one of these faults touched one of these tasks in this time."""
        return any(fault.at <= end and fault.until >= begin for fault in self.faults_of(tasks, kinds))

    def troubles(self, tasks: Iterable[str]) -> list[tuple[float, float]]:
        """The times in which one of these tasks did not run, or could not be reached, or not in time."""
        tasks = tuple(tasks)
        found = [(fault.at, fault.until) for fault in self.faults_of(tasks, AWAY | {"disk slow"})]
        for task in tasks:
            found += self.absences(task)
        return found

    def absences(self, task: str) -> list[tuple[float, float]]:
        """The times in which no supervisor of this task ran."""
        found, over = [], 0.0
        for process in self.of_task.get(task, ()):
            if process.start > over:
                found.append((over, process.start))
            over = max(over, process.end)
        return [*found, (over, inf)] if over < inf else found

    def stood_by(self, child: Child) -> bool:
        """Whether a child was a standby to its end: never ordered, and beside one that trained."""
        others = (other for other in self.children.values() if other.process is child.process and other is not child)
        return not child.orders and any(
            other.orders and other.orders[0].at <= child.end <= other.end + EPSILON for other in others
        )

    def hung_until(self, fault: Fault) -> float:
        """When the children that may have hung since this fault have ended: a standby does so only once it trains."""
        ends = (
            child.end
            for child in self.children.values()
            if child.start <= fault.at <= child.end and fault.task in ("", child.process.task)
        )
        return max(ends, default=fault.until)

    def running(self, task: str, at: float) -> Process | None:
        """The youngest supervisor of this task that runs then."""
        alive = (p for p in reversed(self.of_task.get(task, ())) if p.start <= at <= p.end)
        return next(alive, None)


Promise: TypeAlias = Callable[[Lives], Iterator[Line]]


def longest_calm(begin: float, end: float, troubles: Iterable[tuple[float, float]]) -> float:
    """The longest part of this time that is in none of these."""
    calm, at = 0.0, begin
    for since, until in sorted(troubles):
        calm = max(calm, min(since, end) - at)
        at = max(at, until)
    return max(calm, end - at)


def lives_of(history: History) -> Lives:
    spec, chief = history.spec, history.tasks[0]
    alone = frozenset(task for task in history.tasks if restarts_alone(spec, task, chief))
    members = tuple(task for task in history.tasks if not task.startswith("evaluator"))
    lives = Lives(history, chief, alone, members)
    for event in history.events:
        _ENTER[type(event)](lives, event)
    lives.lie = any(lives.faults_of((chief,), frozenset(("lie",))))
    for processes in lives.of_task.values():
        for older, newer in pairwise(processes):
            assert older.number < newer.number, "trace.py: later processes have higher numbers"
    return lives


def _started(lives: Lives, event: Started) -> None:
    process = lives.processes[event.process] = Process(event.process, event.task, event.run, event.at)
    lives.of_task.setdefault(event.task, []).append(process)


def _exited(lives: Lives, event: Exited) -> None:
    process = lives.processes[event.process]
    process.end, process.code = event.at, event.code


def _killed(lives: Lives, event: Killed) -> None:
    process = lives.processes[event.process]
    process.end, process.killed = event.at, True


def _asked(lives: Lives, event: AskedToStop) -> None:
    process = lives.processes[event.process]
    process.asked = min(process.asked, event.at)


def _child_started(lives: Lives, event: ChildStarted) -> None:
    lives.children[event.child] = Child(event.child, lives.processes[event.process], event.at)


def _ordered(lives: Lives, event: ChildOrdered) -> None:
    child = lives.children[event.child]
    child.orders.append(event)
    child.process.ordered = min(child.process.ordered, event.at)
    lives.orders.append(event)
    if event.task not in lives.alone:
        lives.generations.setdefault(event.generation, []).append(event)


def _child_ended(lives: Lives, event: ChildEnded) -> None:
    child = lives.children[event.child]
    child.end, child.code, child.by = event.at, event.code, event.by


def _step(lives: Lives, event: StepMade) -> None:
    lives.steps.append(event)
    if event.task == lives.chief:
        lives.chief_steps.append(event)


_ENTER: dict[type, Callable[[Lives, Any], None]] = {
    Started: _started,
    Exited: _exited,
    Killed: _killed,
    AskedToStop: _asked,
    ChildStarted: _child_started,
    ChildOrdered: _ordered,
    ChildEnded: _child_ended,
    StepMade: _step,
    CheckpointWritten: lambda lives, event: lives.checkpoints.append(event),
    Wrote: lambda lives, event: lives.wrote.append(event),
    Logged: lambda lives, event: lives.logged.append(event),
    Fault: lambda lives, event: lives.faults.append(event),
}
