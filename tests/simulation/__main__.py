"""`make simulate`: runs histories, as many or as long as asked; exits with 1 if a promise is broken.

A history follows from its seed. One that breaks a promise is made shorter, and shown with the command that replays it.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tests.simulation import defects, history, search, timeline
from tests.simulation.history import Case
from tests.simulation.search import Found

COLLECT = 100
"""Histories between two collections of garbage, which take a third of the time otherwise."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the first history; default: another one each time")
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, help="run for so long, in place of a number of histories")
    parser.add_argument("--keep", help="replays one history with these faults alone: 0,2")
    parser.add_argument("--schedule", type=int, default=0, help="of the history that is replayed")
    parser.add_argument("--defects", action="store_true", help="plants defects, one at a time, until each is found")
    parser.add_argument("--exhaustive", action="store_true", help="one fault and up to two late messages, all of them")
    asked = parser.parse_args()
    gc.disable()
    gc.freeze()
    if asked.keep is not None:
        return _replay(asked.seed, asked.keep, asked.schedule)
    if asked.exhaustive:
        return _try_all()
    first = asked.seed if asked.seed is not None else secrets.randbelow(10**9)
    if asked.defects:
        return _find_defects(first, asked.histories)
    return _search(first, asked.histories, asked.seconds)


def _search(first: int, number: int, seconds: float | None) -> int:
    begun, codes, virtual, broken = time.monotonic(), Counter[int | None](), 0.0, 0
    seeds = itertools.count(first) if seconds else iter(range(first, first + number))
    for done, seed in enumerate(_collected(seeds)):
        if seconds and time.monotonic() - begun > seconds:
            number = done
            break
        found = search.look(history.case(seed))
        if found.history is not None:
            virtual += found.history.ended
            codes[found.history.outcome.get(found.history.tasks[0])] += 1
        if found.broken:
            broken += 1
            _show(search.shortest(found))
            if broken == 3:
                number = done + 1
                break
    took = time.monotonic() - begun
    ended = ", ".join(f"{n:,} with {code}" for code, n in codes.most_common())
    print(
        f"{number:,} histories from seed {first} on, {virtual / 3600:.1f} hours in {took:.0f} s "
        f"({number / took:.0f} a second): {ended}; {broken or 'none'} broke a promise"
    )
    return 1 if broken else 0


def _try_all() -> int:
    begun, number, broken = time.monotonic(), 0, 0
    for number, what in enumerate(search.exhaustive(), 1):
        if number % COLLECT == 0:
            gc.collect()
        if (found := search.look(what)).broken:
            broken += 1
            print(f"{what.plan[0]}; messages {what.delays} are late")
            if broken <= 3:
                _show(found)
    print(f"all {number:,} histories in {time.monotonic() - begun:.0f} s: {broken or 'none'} broke a promise")
    return 1 if broken else 0


def _collected(seeds: Iterator[int]) -> Iterator[int]:
    for i, seed in enumerate(seeds):
        if i % COLLECT == 0:
            gc.collect()
        yield seed


def _replay(seed: int, keep: str, schedule: int) -> int:
    whole = history.case(seed)
    kept = {int(number) for number in keep.split(",") if number}
    plan = tuple(fault for i, fault in enumerate(whole.plan) if i in kept)
    found = search.look(replace(whole, plan=plan, schedule=schedule))
    _show(found)
    return 1 if found.broken else 0


def _show(found: Found) -> None:
    what = found.what
    print(f"\n{_described(what)}")
    for line in timeline.lines(found.history) if found.history else ():
        print(line)
    for line in found.broken:
        print(f"BROKEN: {line}")
    whole = history.case(what.seed)
    keep = ",".join(str(i) for i, fault in enumerate(whole.plan) if fault in what.plan)
    print(f"replay: python -m tests.simulation --seed {what.seed} --keep '{keep}' --schedule {what.schedule}\n")


def _described(what: Case) -> str:
    tasks = ", ".join(f"{n} {kind}" for kind, n in what.spec.tasks.counts().items())
    where = "as on Kubernetes" if what.on_kubernetes else "as on compose"
    return (
        f"seed {what.seed}: {'a program, ' if what.spec.program else ''}{what.spec.strategy}, {tasks}, {where}, "
        f"{what.steps} steps, a checkpoint every "
        f"{what.checkpoint_steps}, max_restarts {what.spec.max_restarts}"
    )


def _find_defects(first: int, most: int) -> int:
    """A defect is found by a history that breaks a promise with it, and none without it."""
    missed = false = 0
    print(f"histories from seed {first} on")
    for defect in defects.DEFECTS:
        with defects.planted(defect):
            number, found = search.first(_collected(iter(range(first, first + most))))
        if found is None:
            missed += 1
            print(f"{defect.name}: NOT found in {number:,}")
        elif (without := search.look(found.what)).broken:
            false += 1
            _show(without)
        else:
            print(f"{defect.name}: found after {number:,}: {found.broken[0]}")
        sys.stdout.flush()
    print(f"{len(defects.DEFECTS) - missed - false} of {len(defects.DEFECTS)} found")
    return 1 if missed or false else 0


if __name__ == "__main__":
    sys.exit(main())
