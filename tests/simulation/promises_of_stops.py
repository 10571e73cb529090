"""What is promised of a request to stop, of the end of the others, and of those whose place another has taken."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf

from tests.simulation.lives import AWAY, DISK, EPSILON, HARMLESS, NOTICE, Line, Lives, say

SECONDS = 10.0
"""docs/operating.md, How it behaves: every other task exits with the chief's code within seconds."""


def stops_in_time(lives: Lives) -> Iterator[Line]:
    """A task that is asked to stop exits within deadlines.stop.

    docs/operating.md, How it behaves, SIGTERM; docs/spec.md, deadlines.stop: time from SIGTERM to the exit. Not while
    it is suspended or its disk is slow. The end of killed processes takes a moment more.
    """
    limit = lives.history.spec.deadlines.stop + NOTICE
    for process in lives.processes.values():
        over = min(process.end, lives.history.ended)
        suspended = DISK | {"freeze"}
        if over - process.asked > limit and not lives.disturbed(process.asked, over, (process.task,), suspended):
            text = f"process {process.number} was asked to stop at {process.asked:.1f} s: deadlines.stop is over"
            yield say(over, process.task, text)


def stop_keeps_the_step(lives: Lives) -> Iterator[Line]:
    """After SIGTERM to the job, or to a task that does not restart alone, training goes on from the step that was
    reached.

    docs/operating.md, How it behaves, SIGTERM; docs/failures.md, "from the step". Judged only if nothing else
    happened in that generation. Under parameter_server some steps under way are not in the checkpoint:
    docs/failures.md has "1 again" at stop all, docs/communication.md says so of rounds; here each worker may lose one
    call (train.steps_per_call).
    """
    if not lives.trains or lives.lie:
        return
    spec = lives.history.spec
    slack = (
        0 if spec.traits.collective or spec.traits.one_task else spec.train.steps_per_call * spec.tasks.worker.replicas
    )
    firsts = [orders[0] for orders in lives.generations.values()]
    disturbing = [fault for fault in lives.faults if fault.kind not in HARMLESS | {"stop", "stop all"}]
    for before, after in pairwise([*firsts, None]):
        assert before is not None
        end = after.at if after else lives.history.ended
        asked = [p for p in lives.processes.values() if before.at < p.asked <= end and p.task not in lives.alone]
        if not asked or any(f.at <= end and f.until >= before.at - NOTICE for f in disturbing):
            continue
        if _died(lives, before.at, end) or not all(process.end < inf for process in asked):
            continue
        reached = [s for s in lives.chief_steps if before.at <= s.at <= end]
        points = [c.step for c in lives.checkpoints if c.at <= end]
        kept = after.step if after else max(points, default=0)
        if reached and kept < reached[-1].step - slack:
            stop = min(asked, key=lambda process: process.asked)
            text = f"process {stop.number} was asked to stop after step {reached[-1].step}, and step {kept} was kept"
            yield say(stop.asked, stop.task, text)


def _died(lives: Lives, begin: float, end: float) -> bool:
    """Whether a supervisor or a child that trained was killed in this time."""
    killed = any(p.killed and begin <= p.end <= end for p in lives.processes.values())
    return killed or any(c.by == "world" and begin <= c.end <= end and c.orders for c in lives.children.values())


def all_tasks_end_as_the_chief(lives: Lives) -> Iterator[Line]:
    """Once the chief is done, or has failed, every other task exits with its code within seconds.

    docs/operating.md, How it behaves; docs/architecture.md, A job's life: every task has been notified. An evaluator
    scores the last checkpoint before, and may exit with 17. A chief that was stopped hands its job over
    (docs/clusters.md, Lost nodes), and one that fails while it starts has told nobody.

    Judged if nothing kept the task from its chief for deadlines.chief_lost before, and no other chief came. The
    children end within deadlines.stop.
    """
    limits = lives.history.spec.deadlines
    chiefs = lives.of_task.get(lives.chief, ())
    if not chiefs or chiefs[-1].code in (None, 15, 20, 143) or chiefs[-1].end - chiefs[-1].start < SECONDS:
        return
    chief = chiefs[-1]
    disturbing = [fault for fault in lives.faults if fault.kind in AWAY | DISK | {"lie"}]
    if any(f.until >= chief.end - limits.chief_lost and f.at <= chief.end + limits.stop + SECONDS for f in disturbing):
        return
    for process in lives.processes.values():
        if process.task == lives.chief or process.killed or process.end < chief.end:
            continue
        if process.run != chief.run or process.start > chief.end - SECONDS:
            continue
        scoring = limits.evaluation if process.task.startswith("evaluator") else 0.0
        codes = {chief.code, 20, *((143,) if process.asked < inf else ()), *((17,) if scoring else ())}
        if process.end > chief.end + limits.stop + SECONDS + scoring or process.code not in codes:
            text = f"process {process.number} ends with {process.code}"
            yield say(process.end, process.task, f"{text}: the chief ended with {chief.code} at {chief.end:.1f} s")


def replaced_tasks_end(lives: Lives) -> Iterator[Line]:
    """A task that comes back after another process has taken its place is refused, ends its child, and exits.

    docs/operating.md, How it behaves and Exit codes, 20. It hears that from its chief; without one it waits for it,
    for deadlines.chief_lost or deadlines.start. A chief finds it in the lease, which it reads every 2 s
    (docs/clusters.md, Lost nodes).
    """
    limits = lives.history.spec.deadlines
    wait = max(limits.chief_lost, limits.start) + limits.task_lost + limits.stop + NOTICE
    for task, processes in lives.of_task.items():
        for old, new in pairwise(processes):
            begin = new.start
            for fault in lives.faults_of((task, lives.chief), AWAY | DISK):
                begin = max(begin, min(fault.until, lives.history.ended))
            if min(old.end, lives.history.ended) > begin + wait + EPSILON:
                text = f"process {old.number} still runs: process {new.number} has its place since {new.start:.1f} s"
                yield say(begin + wait, task, text)
