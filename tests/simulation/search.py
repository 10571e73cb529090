"""Looks for histories that break a promise, and makes one that does as short as it can be."""

from __future__ import annotations

import itertools
import random
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from tests.simulation import history, trace
from tests.simulation.auditor import audit
from tests.simulation.faults import Fault
from tests.simulation.history import Case

SEEDS_OF_A_PLAN = 12
"""A shorter plan has other messages, so it is tried with as many schedules."""


@dataclass
class Found:
    what: Case
    history: trace.History | None
    broken: list[str]


def look(what: Case) -> Found:
    """Runs a history. A defect of the code that ends it is broken, too."""
    try:
        seen = history.run(what)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Found(what, None, [f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"])
    return Found(what, seen, audit(seen))


def shortest(found: Found) -> Found:
    """Leaves out what is not needed to break a promise: faults, late starts, steps, one after another."""
    again = True
    while again:
        again = False
        for less in _shorter(found.what):
            if shorter := _broken(less):
                found, again = shorter, True
                break
    return found


def _broken(what: Case) -> Found | None:
    schedules = [what.schedule, *(random.Random(what.schedule).sample(range(1000), SEEDS_OF_A_PLAN))]
    found = (look(replace(what, schedule=schedule)) for schedule in schedules)
    return next((each for each in found if each.broken), None)


def _shorter(what: Case) -> Iterable[Case]:
    for i in range(len(what.plan)):
        yield replace(what, plan=what.plan[:i] + what.plan[i + 1 :])
    for i in range(len(what.late)):
        yield replace(what, late=what.late[:i] + what.late[i + 1 :])


def first(seeds: Iterable[int], told: Callable[[int], object] = lambda _: None) -> tuple[int, Found | None]:
    """How many histories it took to break a promise, and that one; None if none did."""
    number = 0
    for number, seed in enumerate(seeds, 1):
        told(seed)
        if (found := look(history.case(seed))).broken:
            return number, found
    return number, None


def exhaustive() -> Iterator[Case]:
    """Three tasks, one fault of each kind at each task and moment, and up to two messages that come late."""
    for on_kubernetes in (False, True):
        spec = history.small((("worker", 3),), 6, 3, 3, 25)
        for kind, task, at in itertools.product(KINDS, ("worker:0", "worker:1"), MOMENTS):
            fault = Fault(at, kind, task, 6.0, 0.3)
            for number in range(3):
                for delays in itertools.combinations(range(1, MESSAGES + 1), number):
                    yield Case(0, spec, on_kubernetes, (fault,), (), delays=delays)


KINDS = ("kill", "crash", "stop", "freeze", "zombie")
MOMENTS = (0.05, 0.6, 1.4, 2.2)
MESSAGES = 24
"""The first messages, of which some are late: they form the cluster, and carry the first steps."""
