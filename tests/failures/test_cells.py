"""Cells of the table of failures whose turn it is; all others are run by the next commits, or by `make failures`."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

import pytest

from bench.run import machine
from tests.failures import table
from tests.failures.cells import TARGETS, TASKS, Cell, cells, combinations, left_out
from tests.failures.records import Results
from tests.failures.run import run_cell, unbroken
from tests.tools.rotation import CELL_PARTS

NEED_ROOT = ("disk", "memory")
"""They mount a small file system, and make a cgroup."""


def turn(cell: Cell) -> pytest.MarkDecorator:
    """Each commit kills one worker and one chief on each target; the other cells come in turn."""
    if cell.fault != "kill" or cell.task not in ("worker", "chief"):
        return pytest.mark.slow(parts=CELL_PARTS)
    alike = [each for each in cells(cell.target) if (each.task, each.fault) == (cell.task, cell.fault)]
    # Of a chief another moment than of a worker.
    ahead = len(alike) // 2 if cell.task == "chief" else 0
    return pytest.mark.slow(parts=len(alike), turn=(alike.index(cell) + ahead) % len(alike))


EVERY = [pytest.param(cell, id=cell.name, marks=turn(cell)) for cell in cells()]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("cell", EVERY)
def test_a_promise_holds(tmp_path: Path, cell: Cell) -> None:
    if cell.target == "local" and cell.fault in NEED_ROOT and os.geteuid() != 0:
        pytest.skip(f"{cell.fault}: needs root")
    run, verdict = run_cell(cell, tmp_path, expected(cell.target, cell.strategy))
    assert not verdict.broken, f"{verdict.broken}\n{run.output}"


@functools.cache
def expected(target: str, strategy: str) -> float:
    """The figure of the unbroken job: that of the table if this is its kind of processor, whose sums it has."""
    results, here = Results.read(target), machine()
    if all(results.machine.get(key) == here[key] for key in ("cpu", "instructions")) and strategy in results.unbroken:
        return results.unbroken[strategy]
    with tempfile.TemporaryDirectory() as folder:
        return unbroken(target, strategy, Path(folder) / strategy)


def test_the_page_is_what_the_results_make() -> None:
    page = table.PAGE.read_text()
    written = page[page.index(table.BEGIN) + len(table.BEGIN) : page.index(table.END)]
    assert written.strip().splitlines() == table.lines()


@pytest.mark.parametrize("target", TARGETS)
def test_each_fault_is_tried_or_has_a_reason(target: str) -> None:
    tried = {cell.fault for cell in cells(target)}
    assert all(left_out(cell) for cell in combinations() if cell.target == target and cell.fault not in tried)
    assert {cell.strategy for cell in cells(target)} == {*TASKS}
