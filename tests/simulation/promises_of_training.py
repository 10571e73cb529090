"""What is promised of children, generations, steps and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf

from tests.simulation.lives import (
    AWAY,
    DISK,
    EPSILON,
    HARMLESS,
    LEASE_READ,
    NOTICE,
    ORPHAN,
    Child,
    Line,
    Lives,
    Process,
    say,
)
from tests.simulation.trace import ChildOrdered


def one_child_of_a_task_in_a_generation(lives: Lives) -> Iterator[Line]:
    """Two children of one task never train in one generation at the same time.

    docs/architecture.md, A job's life, 5: the supervisors kill their children and switch to their standbys; a lost
    worker is replaced. docs/operating.md, How it behaves: who comes back after another process has taken its place
    ends its child.

    A killed supervisor's child has two seconds more. One of a task that restarts alone, and that cannot be reached,
    may train until it is reached again, because its generation goes on with another one.
    """
    before: dict[tuple[str, int], list[Child]] = {}
    for order in lives.orders:
        child = lives.children[order.child]
        others = before.setdefault((order.task, order.generation), [])
        for other in others:
            end = _end_in(other, order.generation)
            if other is not child and end > order.at + EPSILON and end > _may_train(lives, other, child, order.at):
                yield say(
                    order.at,
                    order.task,
                    f"two children train in generation {order.generation}: child {other.number} of process "
                    f"{other.process.number}, until {end:.1f} s, and child {child.number} of process {order.process}",
                )
        others.append(child)


def _end_in(child: Child, generation: int) -> float:
    """When a child no longer trains in a generation."""
    later = (order.at for order in child.orders if order.generation > generation)
    return min(next(later, inf), child.end)


def _may_train(lives: Lives, child: Child, successor: Child, at: float) -> float:
    """How long a child may train beside its successor, which was ordered at that time."""
    process = child.process
    if process is successor.process:
        return at
    if process.killed and process.end <= at + EPSILON:
        return process.end + ORPHAN
    if process.task not in lives.alone:
        return at
    return _reached(lives, process, at)


def _reached(lives: Lives, process: Process, at: float) -> float:
    """When a task that cannot be reached at that time must have ended, since it was reached again.

    It reports (task_lost at most, or the chief would have missed it), and ends its child (deadlines.stop at most).
    Where its chief has ended, it waits for deadlines.chief_lost first.
    """
    limits = lives.history.spec.deadlines
    allowed, margin = at, limits.task_lost + limits.stop + NOTICE
    for fault in sorted(lives.faults_of((process.task, lives.chief), AWAY), key=lambda fault: fault.at):
        if fault.at <= allowed + EPSILON and fault.until + margin >= at:
            allowed = max(allowed, fault.until + margin)
    chief = lives.running(lives.chief, allowed)
    return allowed if chief is not None else allowed + limits.chief_lost


def one_trainer_of_a_supervisor(lives: Lives) -> Iterator[Line]:
    """A supervisor orders a child only when the one before has ended, in whatever generation.

    docs/architecture.md, A job's life, 5: the supervisors kill their children and switch to their standbys.
    """
    last: dict[int, Child] = {}
    for order in lives.orders:
        child, before = lives.children[order.child], last.get(order.process)
        if before is not None and before is not child and before.end > order.at + EPSILON:
            text = (
                f"child {child.number} is ordered while child {before.number} still trains, in process {order.process}"
            )
            yield say(order.at, order.task, text)
        last[order.process] = child


def few_children(lives: Lives) -> Iterator[Line]:
    """A supervisor has one child and one standby; an evaluator's, and one without warm_standby, has no standby.

    docs/architecture.md, Processes; docs/spec.md, warm_standby; trainer/job/strategies.py, Runs: only a child that
    takes orders has a standby. One that is being stopped may need deadlines.stop for its end (docs/operating.md).
    """
    spec = lives.history.spec
    grace, standby = spec.deadlines.stop + NOTICE, spec.warm_standby and spec.runs.takes_orders
    alive: dict[int, list[Child]] = {}
    for child in lives.children.values():
        most = 2 if standby and not child.process.task.startswith("evaluator") else 1
        others = [other for other in alive.get(child.process.number, ()) if other.end > child.start + grace]
        alive[child.process.number] = [*others, child]
        if len(others) >= most and child.end > child.start + grace:
            yield say(
                child.start, child.process.task, f"process {child.process.number} keeps {len(others) + 1} children"
            )


def one_meaning_of_a_generation(lives: Lives) -> Iterator[Line]:
    """A generation's number is used once: each task that does not restart alone begins in it once, and later with a
    higher one.

    docs/operating.md, How it behaves: the death of any other task starts a new generation. When a job resumes:
    generations are numbered across the restarts, stops and failures of a job until it is complete.

    With a disk that is full or read-only the number may be lost, and the job ends.
    """
    seen: dict[tuple[str, int], ChildOrdered] = {}
    highest: dict[int, int] = {}
    for order in lives.orders:
        last = highest.get(order.process, 0)
        if order.generation < last:
            yield say(
                order.at, order.task, f"generation {order.generation} begins after generation {last}, in one process"
            )
        highest[order.process] = max(last, order.generation)
        if order.task in lives.alone:
            continue
        first = seen.setdefault((order.task, order.generation), order)
        if first is not order and not lives.disturbed(first.at, order.at, lives.members, DISK):
            text = (
                f"generation {order.generation} begins twice: at {first.at:.1f} s with child {first.child} of process "
            )
            yield say(
                order.at, order.task, f"{text}{first.process}, and with child {order.child} of process {order.process}"
            )


def numbers_increase(lives: Lives) -> Iterator[Line]:
    """The chief's generations increase, over all its processes.

    docs/operating.md, When a job resumes. A process that another has replaced may be late: docs/clusters.md, Lost
    nodes.
    """
    highest, youngest = 0, 0
    for order in lives.orders:
        if order.task != lives.chief or order.process < youngest:
            continue
        if order.generation < highest and not lives.disturbed(0, order.at, lives.members, DISK):
            yield say(order.at, order.task, f"generation {order.generation} begins after generation {highest}")
        highest, youngest = max(highest, order.generation), order.process


def one_step_to_begin_with(lives: Lives) -> Iterator[Line]:
    """All children of a generation of multi_worker_mirrored begin from the same step.

    docs/architecture.md, A job's life, 3: every child is ordered to start, from the step of the newest checkpoint.
    """
    if not lives.history.spec.traits.collective or not lives.trains:
        return
    for generation, orders in lives.generations.items():
        first = orders[0]
        for order in orders[1:]:
            if order.step != first.step:
                text = f"begins generation {generation} from step {order.step}, {first.task} from step {first.step}"
                yield say(order.at, order.task, text)


def newest_checkpoint(lives: Lives) -> Iterator[Line]:
    """A generation begins from the newest complete checkpoint, a graph job from the beginning.

    docs/architecture.md, A job's life, 3 and 5; docs/failures.md: a promise is broken if more steps were repeated
    than since the newest complete checkpoint; docs/operating.md, SIGTERM: a graph job starts again. A program finds
    its own checkpoint: docs/programs.md, What a death means.

    A chief that was replaced may write until it reads the lease (docs/clusters.md, Lost nodes), so what it has
    written within these two seconds may be found or not. Under parameter_server only the chief's child begins from a
    step.
    """
    if lives.history.spec.program:
        return
    tasks = lives.members if lives.history.spec.traits.collective else (lives.chief,)
    for generation, orders in lives.generations.items():
        least, when = _newest(lives, orders[0]) if lives.trains else (0, 0.0)
        for order in orders:
            text = f"generation {generation} begins from step {order.step}"
            if order.task not in tasks or order.step == least:
                continue
            if not lives.trains:
                yield say(order.at, order.task, f"{text}, not from the beginning")
            elif order.step < least:
                yield say(order.at, order.task, f"{text}, not from the checkpoint of step {least}, of {when:.1f} s")
            elif not any(c.step == order.step and c.at <= order.at + EPSILON for c in lives.checkpoints):
                yield say(order.at, order.task, f"{text}: no checkpoint has it")


def _newest(lives: Lives, first: ChildOrdered) -> tuple[int, float]:
    """Step and time of the newest checkpoint that the chief cannot overlook at the begin of a generation."""
    chief = lives.running(lives.chief, first.at)
    step, when = 0, 0.0
    for point in lives.checkpoints:
        if point.at >= first.at - EPSILON:
            break
        writer = lives.processes[point.process]
        if point.step >= step and (writer is chief or writer.end <= first.at or point.at <= first.at - LEASE_READ):
            step, when = point.step, point.at
    return step, when


def each_step_once(lives: Lives) -> Iterator[Line]:
    """A child makes one step after the other, from the one that it was ordered to begin from, and none above
    train.steps.

    docs/operating.md, How it behaves: a job ends after exactly the requested steps, whichever tasks die;
    docs/spec.md, train.steps. A child that lies may do anything.
    """
    if not lives.trains:
        return
    target = lives.target or inf
    last = {(order.child, order.generation): order.step for order in lives.orders}
    liars = {fault.task for fault in lives.faults if fault.kind == "lie"}
    for event in lives.steps:
        key, step = (event.child, event.generation), event.step
        before = last.get(key)
        last[key] = step
        if before is not None and step == before + 1 and step <= target:
            continue
        if event.task in liars or "" in liars:
            continue
        text = f"child {event.child} makes step {step} in generation {event.generation}"
        if before is None:
            yield say(event.at, event.task, f"{text}, for which it has no order")
        elif step > target:
            yield say(event.at, event.task, f"{text}, and the job has {target} steps")
        else:
            yield say(event.at, event.task, f"{text} after step {before}")


def all_steps_of_success(lives: Lives) -> Iterator[Line]:
    """A job that ends with 0 has made each step from 1 to train.steps, and its last checkpoint is that of the last
    step.

    docs/operating.md, Exit codes and How it behaves (exactly the requested steps); docs/architecture.md, A job's
    life, 6.
    """
    target = lives.target
    if target is None or lives.lie:
        return
    ended = next((p for p in lives.of_task.get(lives.chief, ()) if p.code == 0), None)
    if ended is None:
        return
    made = {event.step for event in lives.chief_steps if event.at <= ended.end + EPSILON}
    missing = [step for step in range(1, target + 1) if step not in made] if len(made) < target else []
    if missing:
        yield say(ended.end, lives.chief, f"process {ended.number} ends with 0, but step {missing[0]} was never made")
    if not any(point.step == target and point.at <= ended.end + EPSILON for point in lives.checkpoints):
        yield say(ended.end, lives.chief, f"process {ended.number} ends with 0 without a checkpoint of step {target}")


def alone_is_alone(lives: Lives) -> Iterator[Line]:
    """A task that restarts alone makes no other task restart: each new generation has another cause.

    docs/operating.md, How it behaves: a worker under parameter_server is restarted alone, the evaluator's loss lets
    training continue, and so does the failure of a standby.

    A cause is the end of another task's child that trained, or of its supervisor, a request to stop it, a fault that
    may hide it, or a time of deadlines.progress without a step.
    """
    firsts = [orders[0] for orders in lives.generations.values()]
    tasks = {task for task in lives.history.tasks if task not in lives.alone}
    for before, first in pairwise(firsts):
        if not _cause(lives, tasks, before, first):
            yield say(
                first.at, first.task, f"generation {first.generation} begins, and no task had failed that needs it"
            )


def _cause(lives: Lives, tasks: set[str], before: ChildOrdered, first: ChildOrdered) -> bool:
    begin, end = before.at - NOTICE, first.at + EPSILON
    for process in lives.processes.values():
        if process.task in tasks and (begin <= process.end <= end or begin <= process.asked <= end):
            return True
    for child in lives.children.values():
        ended = child.by != "supervisor" and begin <= child.end <= end
        if ended and child.process.task in tasks and not lives.stood_by(child):
            return True
    harmless, grace = HARMLESS | {"crash", "kill", "stop", "late"}, lives.history.spec.deadlines.hang + NOTICE
    for fault in lives.faults_of(tasks):
        until = lives.hung_until(fault) if fault.kind in ("hang", "lie") else fault.until
        if fault.kind not in harmless and fault.at <= end and until + grace >= begin:
            return True
    last = max((step.at for step in lives.chief_steps if step.at <= end), default=before.at)
    return first.at - max(last, before.at) >= lives.history.spec.deadlines.progress - NOTICE


def all_tasks_of_a_generation(lives: Lives) -> Iterator[Line]:
    """A generation begins when all tasks but the evaluator are there.

    docs/architecture.md, A job's life, 3; Processes: no generation waits for the evaluator.

    The chief notices within deadlines.task_lost that one is not; while it is suspended it misses none
    (docs/operating.md).
    """
    notice = lives.history.spec.deadlines.task_lost + NOTICE
    absences = {task: lives.absences(task) for task in lives.members}
    for generation, orders in lives.generations.items():
        first = orders[0]
        asleep = sum(fault.until - fault.at for fault in lives.faults_of((lives.chief,), AWAY) if fault.at <= first.at)
        for task in lives.members:
            for begin, end in absences[task]:
                if begin < first.at < end and (begin == 0 or first.at - begin > notice + asleep):
                    yield say(
                        first.at, first.task, f"generation {generation} begins without {task}, away since {begin:.1f} s"
                    )


FORMED = 2.0
"""A child gets its order so long after its generation has formed: its import may take as long."""


def restarts_are_counted(lives: Lives) -> Iterator[Line]:
    """The cluster is formed again at most max_restarts times in a row without a new step.

    docs/operating.md, How it behaves, repeated crash: the next failure ends the job. Restarts of the chief do not
    reset it; after a stop it counts from zero (When a job resumes). The documents do not say whether a loss by
    SIGTERM counts: here it does not. A program's progress is what it writes or reports, so it is not judged.
    """
    spec, count = lives.history.spec, 0
    firsts = [orders[0] for orders in lives.generations.values()]
    asked = [process.asked for process in lives.processes.values() if process.asked < inf]
    if not lives.trains or lives.lie:
        return
    for before, first in pairwise(firsts):
        stepped = any(before.at <= step.at <= first.at and step.step > before.step for step in lives.chief_steps)
        stopped = any(before.at - FORMED <= at <= first.at for at in asked)
        new_run = lives.processes[before.process].run != lives.processes[first.process].run
        count = 0 if stopped or new_run or stepped else count + 1
        if count > spec.max_restarts:
            text = (
                f"generation {first.generation} is restart {count} in a row without a new step, of {spec.max_restarts}"
            )
            yield say(first.at, first.task, text)


def three_standbys(lives: Lives) -> Iterator[Line]:
    """After three standbys in a row have failed, a task continues without one.

    docs/operating.md, How it behaves.
    """
    failed: dict[int, int] = {}
    trains = {order.process for order in lives.orders}
    for child in lives.children.values():
        number = child.process.number
        if number not in trains or child.start < child.process.ordered:
            continue
        if failed.get(number, 0) >= 3 and lives.stood_by(child):
            text = f"process {number} starts another standby, child {child.number}, after three have failed"
            yield say(child.start, child.process.task, text)
        if child.by in ("itself", "world") and lives.stood_by(child):
            failed[number] = failed.get(number, 0) + 1
        elif child.orders:
            failed[number] = 0
