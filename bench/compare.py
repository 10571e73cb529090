"""`make bench-compare`: what became slower than the committed results of this kind of CPU.

    python -m bench.compare [--from FILE ...] [--turns N] [--smoke]

Measures throughput and costs anew, or reads them from files as the benchmark writes them, named PART-*.json. Machines
of one kind differ, and one machine from hour to hour, by more than what is looked for, so nothing is compared as it was
measured: examples/s are taken as a share of the ideal pair's in the same turn, and seconds as what the ideal pair of
the same run trains meanwhile. What makes all of trainer slower, that pair too, shows only as peers that seem faster.

A row is slower if all of its change's interval is (95 %), and the change is more than MARGINS; the last column is
"unclear" where the interval is so wide that such a change may hide in it. The exit code is 1 if a row of trainer's is
slower, 2 if there is nothing to compare with, otherwise 0.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import costs, intervals, run, throughput
from bench.intervals import Interval
from bench.throughput import IDEAL, OURS

MARGINS = {"throughput": 0.04, "costs": 0.10}
"""A smaller change is the machine's mood, also if it lasts for a whole run. Starts and recoveries vary more."""
FEWEST = 3
"""Measurements on either side; of fewer there is no verdict, because their interval says nothing."""

Rows = Mapping[str, Sequence[float]]


class Row(NamedTuple):
    name: str
    verdict: str
    change: Interval | None = None
    """How many times as fast as before; None if it is known on one side only."""
    ours: bool = True
    """Whether it is a row of trainer's, not of a peer's."""


def compare(part: str, now: Mapping[str, Any], before: Mapping[str, Any]) -> list[Row]:
    """
    Args:
        now: results as in the files, by part; what costs has no ideal pair of its own is compared by throughput's.
        before: the same, of the committed files.
    """
    mine, other = (_comparable(part, side) for side in (now, before))
    rows = []
    for name in [*other, *(name for name in mine if name not in other)]:
        ours = part == "costs" or "trainer" in name
        if name not in mine or name not in other:
            rows.append(Row(name, "not measured now" if name not in mine else "new", ours=ours))
            continue
        change = intervals.change(mine[name], other[name])
        few = min(len(mine[name]), len(other[name])) < FEWEST
        rows.append(Row(name, "too few" if few else _verdict(change, MARGINS[part]), change, ours))
    return rows


def _verdict(change: Interval, margin: float) -> str:
    if change.high < 1 and change.median < 1 - margin:
        return "slower"
    if change.low > 1 and change.median > 1 + margin:
        return "faster"
    return "same" if 1 - margin <= change.low and change.high <= 1 + margin else "unclear"


def _comparable(part: str, side: Mapping[str, Any]) -> Rows:
    """Figures of which more is faster, and which do not depend on the speed of the machine."""
    if part == "throughput":
        rates: Rows = side["throughput"]
        ideal = rates[IDEAL]
        return {name: _ratios(values, ideal) for name, values in rates.items() if name != IDEAL}
    speed = statistics.median(_ideal(side))
    return {name: [1 / (value * speed) for value in values] for name, values in _seconds(side["costs"])}


def _ideal(side: Mapping[str, Any]) -> Sequence[float]:
    """Rates of the ideal pair in the run of the costs; or on a machine of that kind, of results before they had it."""
    found: Sequence[float] = side["costs"].get("ideal") or side["throughput"][IDEAL]
    return found


def _ratios(values: Sequence[float], ideal: Sequence[float]) -> list[float]:
    return [value / best for value, best in zip(values, ideal, strict=True)]


def _seconds(figures: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[float]]]:
    """The rows of seconds in the table of costs."""
    for cache, runs in figures["first_step"].items():
        yield f"`trainer local` to the demo's first step, file cache {cache}", [sum(each.values()) for each in runs]
    for name, values in figures["recovery"].items():
        yield f"SIGKILL of {name}, to the next step", values
    yield "`result.json` written to the last task's exit", figures["end"]
    for key in ("commands", "render"):
        yield from figures[key].items()
    for name, values in figures["rendezvous"].items():
        yield f"rendezvous of {name}", values


def table(rows: Sequence[Row]) -> list[str]:
    """Plain text: changes first, in columns."""
    order = ["slower", "faster", "unclear", "same", "too few", "new", "not measured now"]
    width = max(len(row.name) for row in rows)
    lines = [f"{'':{width}}  times as fast (95 %)"]
    for row in sorted(rows, key=lambda row: order.index(row.verdict)):
        change = row.change.text() if row.change else ""
        peer = "" if row.ours else " (a peer)"
        lines.append(f"{row.name:{width}}  {change:21} {row.verdict}{peer}")
    return lines


def exit_code(rows: Sequence[Row]) -> int:
    return int(any(row.verdict == "slower" and row.ours for row in rows))


def committed(machine: Mapping[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """The results of machines of this kind, by part; with those of throughput, which belong to costs.

    Raises:
        SystemExit: there are none.
    """
    found = {}
    for part in {*parts, "throughput"}:
        path = run.results(part, machine)
        result = json.loads(path.read_text()) if path.exists() else None
        if result is None or result["machine"]["cores"] != machine["cores"]:
            print(
                f"no committed results of {part} on this kind of CPU ({machine['cpu']}, {path.stem.partition('-')[2]}, "
                f"{machine['cores']} cores): nothing to compare with; `make bench` writes them"
            )
            raise SystemExit(2)
        if result["machine"]["cpu"] != machine["cpu"]:
            print(f"{part}: another model of CPU than the committed results' ({result['machine']['cpu']})")
        found[part] = result["figures"]
    return found


def read(files: Sequence[Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results by part, and the machine that they are of."""
    results = {path.name.partition("-")[0]: json.loads(path.read_text()) for path in files}
    if unknown := results.keys() - MARGINS.keys():
        raise SystemExit(f"{', '.join(sorted(unknown))}: files are named PART-*.json, of {' or '.join(MARGINS)}")
    return {part: each["figures"] for part, each in results.items()}, next(iter(results.values()))["machine"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description="see bench/compare.py")
    parser.add_argument("--from", dest="files", nargs="+", type=Path, metavar="FILE", help="results instead of a run")
    parser.add_argument("--turns", type=int, default=5, help="of each contender (5)")
    parser.add_argument("--smoke", action="store_true", help="two contenders once, small; compared with themselves")
    arguments = parser.parse_args()
    now: dict[str, Any]
    if arguments.smoke:  # on any CPU, and no verdict on its speed
        now = before = {"throughput": throughput.measure(1, smoke=True, only=(IDEAL, OURS))}
    elif arguments.files:
        now, machine = read(arguments.files)
        before = committed(machine, list(now))
    else:
        before = committed(run.machine(), list(MARGINS))  # before the minutes of a run
        now = {
            "throughput": throughput.measure(arguments.turns, smoke=False),
            "costs": costs.measure(arguments.turns, smoke=False),
        }
    rows = []
    for part in now:
        print(f"{part}:")
        found = compare(part, now, before)
        print("\n".join(table(found)))
        rows += found
    if "throughput" in now:
        speed = intervals.change(now["throughput"][IDEAL], before["throughput"][IDEAL])
        print(f"The ideal pair, by which all is divided: {speed.text()} times as fast, or the machine is.")
    return exit_code(rows)


if __name__ == "__main__":
    sys.exit(main())
