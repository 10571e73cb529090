"""Writes the results of the cells into docs/failures.md: python -m tests.failures.table"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import groupby

from bench.run import ROOT
from tests.failures.cells import FAULTS, LEFT_OUT, MOMENTS, TARGETS, TASKS, Cell, cells, promise
from tests.failures.jobs import DEADLINES, MISSED_SECONDS
from tests.failures.records import Record, Results

PAGE = ROOT / "docs" / "failures.md"
BEGIN, END = "<!-- `make failures` writes from here -->", "<!-- to here: failures -->"
AT_ONCE = 0.5
"""Seconds that need not be mentioned."""
TITLES = {"local": "Local", "compose": "Compose", "kind": "Kubernetes (kind)"}


def lines() -> list[str]:
    """What the results of all targets make of the page."""
    results = [Results.read(target) for target in TARGETS]
    found = [*_summary(results), "", "### Faults and moments", "", "| fault | |", "|---|---|"]
    found += [f"| {fault} | {text} |" for fault, text in FAULTS.items()]
    found += ["", "| moment | |", "|---|---|", *(f"| {moment} | {text} |" for moment, text in MOMENTS.items())]
    found += ["", "Not tried:", "", *(f"- {rule.what}: {rule.why}" for rule in LEFT_OUT)]
    return [*found, *(line for each in results if each.cells for line in _of_target(each))]


def _summary(results: list[Results]) -> list[str]:
    """Of each target and strategy: how many cells, and how they went."""
    rows = [
        "| | cells | promises broken | goes on | new generation: seconds | started again: seconds |",
        "|" + "---|" * 6,
    ]
    for each in results:
        by_name = {cell.name: cell for cell in cells(each.target)}
        for strategy in TASKS:
            own = [record for name, record in each.cells.items() if by_name[name].strategy == strategy]
            if own:
                goes_on = sum(record.outcome == "goes on" for record in own)
                spans = " | ".join(_span(own, outcome) for outcome in ("new generation", "started again"))
                broken = sum(bool(record.broken) for record in own)
                rows.append(f"| {TITLES[each.target]}, `{strategy}` | {len(own)} | {broken} | {goes_on} | {spans} |")
    return rows


def _span(records: list[Record], outcome: str) -> str:
    """The seconds until the next step: median, and from the least to the most."""
    found = [record.next_step for record in records if record.outcome == outcome and record.next_step is not None]
    return f"{statistics.median(found):.0f} ({min(found):.0f} to {max(found):.0f})" if found else ""


def _of_target(results: Results) -> Iterator[str]:
    target, tried = results.target, cells(results.target)
    broken = sum(bool(record.broken) for record in results.cells.values())
    deadlines = DEADLINES[target]
    yield from ("", f"### {TITLES[target]}", "")
    yield (
        f"{len(results.cells)} of {len(tried)} cells were run, on {results.machine['cpu']}, "
        f"{results.machine['cores']} cores, until {results.machine['date']}; {broken or 'no'} promises are broken. "
        f"`deadlines.task_lost` is {deadlines.get('task_lost', 10)} s, `hang` {deadlines.get('hang', 20)} s; a task is "
        f"frozen or cut off for {MISSED_SECONDS[target]:g} s. The load was {_load(results)}. {_accuracy(results)}"
    )
    for strategy, rows in groupby(tried, key=lambda cell: cell.strategy):
        own = list(rows)
        moments = [moment for moment in MOMENTS if any(cell.moment == moment for cell in own)]
        yield from ("", f"| `{strategy}` | promised | {' | '.join(moments)} |", "|---|---|" + "---|" * len(moments))
        for (task, fault), group in groupby(own, key=lambda cell: (cell.task, cell.fault)):
            by_moment = {cell.moment: cell for cell in group}
            records = [by_moment[moment].name if moment in by_moment else "" for moment in moments]
            texts = [text(results.cells[name]) if name in results.cells else "?" if name else "" for name in records]
            promised = _promised(next(iter(by_moment.values())))
            yield f"| {fault}{'' if task == 'job' else f' {task}'} | {promised} | {' | '.join(texts)} |"


def _promised(cell: Cell) -> str:
    promised = promise(cell)
    code = f"exit code {promised.codes[0]}, then " if len(promised.codes) > 1 else ""
    return code + ("goes on" if promised.goes_on else promised.repeats)


def text(record: Record) -> str:
    """A cell: the outcome, the seconds until the next step, and the steps that were made again."""
    goes_on = record.outcome == "goes on" and (record.next_step or 0) < AT_ONCE
    seconds = "" if goes_on or record.next_step is None else f", {record.next_step:.1f} s"
    again = f", {record.repeated} again" if record.repeated else ""
    found = f"{record.outcome}{seconds}{again}"
    return f"{found}; **broken: {'; '.join(record.broken)}**" if record.broken else found


def _load(results: Results) -> str:
    loads = [record.load for record in results.cells.values()]
    return f"{min(loads):.0f} to {max(loads):.0f}, in the median {statistics.median(loads):.0f}"


def _accuracy(results: Results) -> str:
    """How far the results of the cells are from those of the unbroken jobs."""
    by_name = {cell.name: cell for cell in cells(results.target)}
    found = []
    for strategy, expected in results.unbroken.items():
        own = [record.accuracy for name, record in results.cells.items() if by_name[name].strategy == strategy]
        reached = [value for value in own if value is not None]
        if reached and strategy != "graph":
            found.append(
                f"under {strategy} {min(reached):.3f} to {max(reached):.3f}, unbroken {expected:.3f}"
                if max(reached) > min(reached)
                else f"under {strategy} {expected:.3f} in every cell, as unbroken"
            )
    return f"Test accuracy: {'; '.join(found)}." if found else ""


def write() -> None:
    """Renews the page."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + "\n".join([BEGIN, "", *lines(), "", END]) + rest.split(END)[1])


if __name__ == "__main__":
    write()
