"""What is promised of how soon a job notices that something is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.lives import DISK, NETWORK, NOTICE, Child, Line, Lives, Process, say
from tests.simulation.promises_of_files import facts

TAKES_STACKS = 5.0
"""docs/operating.md, A job that hangs: before the child is killed the chief takes the stacks of all tasks."""


def silence_is_noticed(lives: Lives) -> Iterator[Line]:
    """A task whose supervisor has been silent for deadlines.task_lost is lost.

    docs/spec.md, deadlines.task_lost. It is looked for in the journal, where a loss, a stall or the end of the job may
    also come first; only while a generation runs, whose chief nothing disturbs.
    """
    wait = lives.history.spec.deadlines.task_lost + NOTICE
    notices = [event.at for kind in ("lost", "stalled", "ended") for event, _ in facts(lives, kind)]
    for fault in lives.faults:
        end = fault.at + wait
        if fault.kind != "freeze" or fault.until < end or fault.task not in lives.members or fault.task == lives.chief:
            continue
        process, chief = lives.running(fault.task, fault.at), lives.running(lives.chief, fault.at)
        if process is None or chief is None or process.end < end or chief.end < end:
            continue
        if not all(_trains(lives, each, fault.at) for each in (process, chief)):
            continue
        others = [each for each in lives.faults if each is not fault and each.at <= end and each.until >= fault.at]
        if any(each.kind in DISK | NETWORK or each.task in ("", lives.chief) for each in others):
            continue
        absences = (each for task in lives.members if task not in lives.alone for each in lives.absences(task))
        if any(begin < end and over > fault.at for begin, over in absences):
            continue  # the generation may have ended: then the job waits for all
        if not any(fault.at - NOTICE <= at <= end for at in notices):
            yield say(end, fault.task, f"process {process.number} is frozen since {fault.at:.1f} s, and not lost")


def hangs_are_noticed(lives: Lives) -> Iterator[Line]:
    """A child that gives no sign of life for deadlines.hang is killed.

    docs/spec.md, deadlines.hang. Judged is a child that trains or serves, alone in its supervisor, if its task and its
    chief have only this fault.
    """
    wait = lives.history.spec.deadlines.hang + TAKES_STACKS + NOTICE
    for fault in lives.faults:
        others = (each for each in lives.faults if each is not fault)
        if fault.kind != "hang" or any(each.task in ("", fault.task, lives.chief) for each in others):
            continue
        child, end = _only_child(lives, fault.task, fault.at), fault.at + wait
        if child is None or lives.history.spec.program or min(child.process.asked, lives.history.ended) < end:
            continue
        if child.orders and child.orders[0].at < fault.at and child.end > end < child.process.end:
            yield say(end, fault.task, f"child {child.number} hangs since {fault.at:.1f} s, and still runs")


def _trains(lives: Lives, process: Process, at: float) -> bool:
    """Whether a child of it trains, or serves."""
    children = (each for each in lives.children.values() if each.process is process and each.orders)
    return any(each.orders[0].at <= at < each.end for each in children)


def _only_child(lives: Lives, task: str, at: float) -> Child | None:
    there = [each for each in lives.children.values() if each.process.task == task and each.start <= at <= each.end]
    return there[0] if len(there) == 1 else None
