"""Runs cells of the table of failures, and writes their results and docs/failures.md.

    python -m tests.failures TARGET [NAME...] [--part I/N] [--again | --missing]     `make failures`

A NAME is a part of a cell's name, such as graph/worker or kill/end. A cell whose result comes from the commit that is
checked out is not run again without --again; --missing runs those without any result. What each job printed is in
build/failures. Exits with 1 if a promise was broken, or a cell could not be tried.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench.run import ROOT
from tests.failures import records, table
from tests.failures.cells import TARGETS, TASKS, Cell, cells
from tests.failures.records import Results
from tests.failures.run import Missed, run_cell, unbroken

LOGS = ROOT / "build" / "failures"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.failures", description="see tests/failures/__main__.py")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of cells; default: all cells")
    parser.add_argument("--part", metavar="I/N", default="1/1", help="the Ith of N parts, such as 3/40")
    parser.add_argument("--again", action="store_true", help="also those that this commit has run")
    parser.add_argument("--missing", action="store_true", help="only those that no commit has run")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the job of the cell is ended
    number, _, count = arguments.part.partition("/")
    wanted = [
        cell for cell in cells(arguments.target) if not arguments.names or any(n in cell.name for n in arguments.names)
    ]
    wanted = wanted[int(number) - 1 :: int(count)]
    results = Results.read(arguments.target)
    if not arguments.again:
        here, any_commit = records.commit(), arguments.missing
        known = {name for name, record in results.cells.items() if any_commit or record.commit == here}
        wanted = [cell for cell in wanted if cell.name not in known]
    broken = sum(_run(cell, results) for cell in wanted)
    table.write()
    return int(broken > 0)


def _run(cell: Cell, results: Results) -> bool:
    """Runs a cell and keeps its result; returns whether it broke a promise."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="failures-") as folder:
        for strategy in TASKS:
            if strategy not in results.unbroken:
                results.unbroken[strategy] = unbroken(cell.target, strategy, Path(folder) / strategy)
        try:
            run, verdict = run_cell(cell, Path(folder), results.unbroken[cell.strategy])
        except (AssertionError, Missed) as error:
            print(f"{cell.name}: could not be tried: {error}", flush=True)
            return True
    record = results.add(cell, run.codes, verdict)
    results.write()
    log = LOGS / f"{cell.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(run.output)
    print(f"{cell.name}: {table.text(record)} ({time.monotonic() - begun:.0f} s)", flush=True)
    return bool(record.broken)


if __name__ == "__main__":
    sys.exit(main())
