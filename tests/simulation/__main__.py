"""Runs histories, each by its seed: `python -m tests.simulation HISTORIES SEED`."""

from __future__ import annotations

import sys
import time
from collections import Counter

from tests.simulation import history
from tests.simulation.auditor import audit

if __name__ == "__main__":
    begun = time.monotonic()
    count, first = int(sys.argv[1]), int(sys.argv[2])
    outcomes: Counter[object] = Counter()
    virtual = 0.0
    for seed in range(first, first + count):
        what = history.case(seed)
        try:
            found = history.run(what)
            broken = audit(found)
        except Exception as error:
            print(seed, type(error), error)
            if count == 1:
                raise
            continue
        virtual += found.ended
        outcomes[found.outcome.get(found.tasks[0])] += 1
        if broken:
            print(seed, [str(each) for each in what.plan], what.spec.strategy, what.spec.max_restarts, what.late)
            for line in broken:
                print("   ", line)
    if count == 1:
        for event in found.events:
            print(event)
        print(what.plan)
    print(outcomes, virtual / count, count / (time.monotonic() - begun), "a second")
