"""What the exit code of a task means: docs/operating.md, Exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

from tests.simulation.lives import AWAY, EPSILON, NETWORK, NOTICE, Line, Lives, Process, longest_calm, say
from tests.simulation.promises_of_files import facts

SHARE = 0.9
"""The part of a deadline that must have passed: a deadline begins at a message, which the trace does not have."""
RETURN = 20.0
"""How long a task that has come back is not yet there. docs/operating.md, Troubleshooting: TensorFlow's import takes
2 to 4 s of one core for each task; docs/architecture.md: the chief must have connected to it.
"""
CLOCKS = 3.0
"""CHANGELOG.md: differences up to 2 s are of clocks, not of processes. The clocks of this world differ by a second."""
ADDRESS = 60.0
"""docs/operating.md, How it behaves: a task that does not answer at its address has 60 s."""


def codes_mean_what_the_table_says(lives: Lives) -> Iterator[Line]:
    """Each exit code has the reason that docs/operating.md, Exit codes, gives for it."""
    ended: set[tuple[str, object]] | None = None
    for process in lives.processes.values():
        code = process.code
        if not code:
            continue
        if code not in _REASONS:
            yield say(process.end, process.task, f"process {process.number} ends with {code}, an unknown exit code")
            continue
        if process.task != lives.chief and code not in (1, 15, 20, 143):
            ended = _verdicts(lives) if ended is None else ended
            if (process.run, code) in ended:
                continue
        why = _REASONS[code](lives, process)
        if why:
            yield say(process.end, process.task, f"process {process.number} ends with {code}, but {why}")


def _verdicts(lives: Lives) -> set[tuple[str, object]]:
    """The ends of the job in each run: "every other task exits with its code"."""
    chiefs = lives.of_task.get(lives.chief, ())
    written = {(lives.processes[event.process].run, fact.get("code")) for event, fact in facts(lives, "ended")}
    return {(process.run, process.code) for process in chiefs} | written


def _defect(_lives: Lives, _process: Process) -> str:
    return "that is a defect in trainer"


def _user(lives: Lives, process: Process) -> str:
    """2: with a full or read-only disk, and for what the child itself reported; nothing else is wrong in a history."""
    disk = frozenset(("disk full", "disk read-only"))
    wrong = lives.disturbed(0, process.end, lives.history.tasks, disk) or _child_failed(lives, process.end)
    return "" if wrong else "neither the disk nor a child gave a reason"


def _child_failed(lives: Lives, at: float) -> bool:
    """Whether a child failed by itself, or lied, until then."""
    failed = any(child.by == "itself" and child.code and child.end <= at + EPSILON for child in lives.children.values())
    return failed or any(fault.kind == "lie" and fault.at <= at for fault in lives.faults)


def _missing(lives: Lives, process: Process) -> str:
    """10: some task was missing all the time, and no generation formed.

    deadlines.start counts from the start of the chief, deadlines.rejoin from a loss until the next generation has
    formed (docs/clusters.md, Waiting). A program of which all workers must succeed waits while others train.
    """
    if process.task != lives.chief:
        return "the chief has not ended so"
    limits = lives.history.spec.deadlines
    passed = SHARE * min(limits.start, limits.rejoin) - 1
    begin = process.end - passed
    first = min(p.start for p in lives.of_task[lives.chief] if p.run == process.run)
    if first > begin:
        return f"the job began at {first:.1f} s"
    firsts = [orders[0] for orders in lives.generations.values()]
    formed = [order for order in firsts if begin + NOTICE < order.at < process.end]
    if formed and not lives.history.spec.program:
        return f"generation {formed[-1].generation} began at {formed[-1].at:.1f} s"
    troubles = lives.troubles(lives.members)
    troubles += [(child.end, child.end + RETURN) for child in lives.children.values() if child.end < inf]
    hung = [fault for fault in lives.faults if fault.kind in ("hang", "deaf")]
    troubles += [(fault.at, max(fault.until, lives.hung_until(fault) + RETURN)) for fault in hung]
    if longest_calm(begin, process.end, troubles) > RETURN + limits.task_lost:
        return "no task was missing for so long"
    return ""


def _mismatch(lives: Lives, process: Process) -> str:
    """11: all tasks of a history are alike, so one did not answer at its address, for 60 s; or a stranger who has the
    secret sent what a task of another cluster would."""
    begin = process.end - ADDRESS - 2 * NOTICE - lives.history.spec.deadlines.task_lost
    kinds = AWAY | {"lie", "garbage"}
    return (
        "" if lives.disturbed(begin, process.end, lives.history.tasks, kinds) else "each task answered at its address"
    )


def _by_child(lives: Lives, process: Process) -> str:
    """12 and 13: only a child finds that."""
    return "" if _child_failed(lives, process.end) else "no child gave a reason"


def _last_new_step(lives: Lives, process: Process, seconds: float) -> int:
    """The generation of the last new step, of those whose children lived for so long after it."""
    newest, highest = 0, 0
    for step in lives.chief_steps if lives.trains else ():
        if step.at <= process.end and step.step > highest and lives.children[step.child].end > step.at + seconds:
            highest, newest = step.step, max(newest, step.generation)
    return newest


def _gave_up(lives: Lives, process: Process) -> str:
    """14: max_restarts generations in a row, or as many children of a ps-worker, without a new step.

    Of a step that a child made in its last second its supervisor may have heard, or not. Of a ps-worker's
    own steps the trace has none, so all its children count. The generations are those of the journal. `resume: none` is
    as max_restarts: 0 (docs/programs.md).
    """
    if process.task != lives.chief:
        return "the chief has not ended so"
    spec = lives.history.spec
    if spec.resume == "none" or lives.lie:
        return ""
    formed = (fact.get("number") for event, fact in facts(lives, "formed") if event.at <= process.end)
    last = max((number for number in formed if isinstance(number, int)), default=0)
    newest = min(_last_new_step(lives, process, seconds) for seconds in (0, 1))
    if last - newest >= spec.max_restarts:
        return ""
    for task in lives.alone:
        ended = (child for child in lives.children.values() if child.process.task == task and child.end <= process.end)
        if sum(1 for _ in ended) > spec.max_restarts:
            return ""
    return f"since the last new step, in generation {newest}, the cluster was formed again {last - newest} times"


def _chief_lost(lives: Lives, process: Process) -> str:
    """15: the chief did not reply for deadlines.chief_lost, or from the start on for deadlines.start.

    An evaluator, and a program whose volume one node can mount, wait at most 120 s (docs/clusters.md, Waiting). A
    chief that has come back may wait for the lease (docs/clusters.md, Lost nodes) before it answers. Of two, one on a
    node that was lost, there is no telling which one a task could reach.
    """
    if process.task == lives.chief:
        return "it is the chief"
    if any(fault.kind == "zombie" and fault.task == lives.chief for fault in lives.faults):
        return ""
    limits = lives.history.spec.deadlines
    wait = min(limits.start, limits.chief_lost)
    if process.task.startswith("evaluator") or lives.history.spec.program:
        wait = min(wait, 120.0)
    passed = SHARE * wait - 1
    if process.end - process.start < passed:
        return f"it began at {process.start:.1f} s"
    calm = longest_calm(process.end - passed, process.end, lives.troubles((lives.chief, process.task)))
    return f"the chief was there for {calm:.1f} s" if calm > limits.stop + 5 + NOTICE else ""


def _target(_lives: Lives, _process: Process) -> str:
    """16: there are neither Docker nor Kubernetes in a history."""
    return "that is an exit code of submit and track"


def _evaluation(lives: Lives, process: Process) -> str:
    """17: the chief's evaluation took longer than deadlines.evaluation, or the evaluator failed."""
    limit = SHARE * lives.history.spec.deadlines.evaluation - 1
    events = [*lives.chief_steps, *(order for order in lives.orders if order.task == lives.chief)]
    last = max((event.at for event in events if event.at <= process.end), default=0.0)
    if process.end - last >= limit:
        return ""
    if not process.task.startswith("evaluator"):
        return f"the chief's child trained until {last:.1f} s"
    ended = any(c.process.task == process.task and c.by != "supervisor" and c.code for c in lives.children.values())
    return "" if ended or lives.disturbed(0, process.end, (process.task,)) else "nothing happened to the evaluator"


def _program(lives: Lives, process: Process) -> str:
    """18: a program ended with 1 to 127 by itself."""
    children = lives.children.values()
    failed = any(c.by == "itself" and 1 <= (c.code or 0) <= 127 and c.end <= process.end + EPSILON for c in children)
    return "" if failed and lives.history.spec.program else "no program failed"


def _overdue(lives: Lives, process: Process) -> str:
    """19: deadlines.job has passed since the job's start, over its restarts (docs/spec.md, deadlines.job)."""
    limit = lives.history.spec.deadlines.job
    if limit is None:
        return "there is no deadlines.job"
    chiefs = [p.start for p in lives.of_task.get(lives.chief, ()) if p.run == process.run]
    began = min(chiefs, default=process.start)
    return f"the job began at {began:.1f} s" if process.end - began < limit - 1 else ""


def _replaced(lives: Lives, process: Process) -> str:
    """20: another process of the task was started after this one, or ran on while this one could not be reached.

    Which of two was started later is known by the clocks of their machines, which may differ by CLOCKS
    (communication.md does not say more).
    """
    if any(fault.kind == "clock" for fault in lives.faults):
        return ""
    others = [p for p in lives.of_task[process.task] if p is not process and p.start <= process.end <= p.end + EPSILON]
    apart = lives.disturbed(process.start, process.end, (process.task, lives.chief), NETWORK)
    later = (
        p for p in lives.of_task[process.task] if p is not process and process.start - CLOCKS <= p.start <= process.end
    )
    return "" if any(later) or (apart and others) else "no other process has its place"


def _stopped(lives: Lives, process: Process) -> str:
    """143: it was asked to stop, or its chief was, whose code every other task may have (How it behaves)."""
    asked = process.asked <= process.end
    chiefs = (p for p in lives.of_task.get(lives.chief, ()) if p.run == process.run and p.asked <= process.end)
    return "" if asked or any(chiefs) else "nobody asked it to stop"


_REASONS: dict[int, Callable[[Lives, Process], str]] = {
    1: _defect,
    2: _user,
    10: _missing,
    11: _mismatch,
    12: _by_child,
    13: _by_child,
    14: _gave_up,
    15: _chief_lost,
    16: _target,
    17: _evaluation,
    18: _program,
    19: _overdue,
    20: _replaced,
    143: _stopped,
}
