"""Runs one cell: starts its job, waits for the moment, harms it, and judges what came of it."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.failures.cells import OF_THE_JOB, Cell, promise
from tests.failures.files import Files
from tests.failures.jobs import MISSED_SECONDS, is_moment, was_moment
from tests.failures.judge import HUNG, Run, Verdict, figure_of, judge

START_SECONDS, TRIES = 240.0, 3
RUN_SECONDS = {"local": 200.0, "compose": 240.0, "kind": 500.0}
"""A job that takes longer hangs."""
POLL_SECONDS = 0.005
LASTING = ("freeze", "cut")
"""Faults that are lifted while the job goes on."""


class Fault(NamedTuple):
    """What happens to a task, and how it is lifted."""

    strike: Callable[[], object]
    lift: Callable[[], object] = lambda: None


class Place(Protocol):
    """A job on a target, from the entering of its context until it is left."""

    files: Files

    def __enter__(self) -> Place: ...

    def __exit__(self, *_: object) -> None: ...

    @property
    def output(self) -> str:
        """What the job has printed so far."""

    def over(self) -> bool:
        """Whether the job has ended."""

    def aim(self, cell: Cell) -> Fault:
        """Prepares the fault, once the job makes steps."""

    def wait(self, timeout: float) -> int:
        """The exit code, once the job has ended."""

    def again(self) -> None:
        """Starts the job again, as its user would: the same command."""


Start = Callable[[Path, str, "Cell | None"], Place]
"""Of a folder of its own, a strategy, and the cell; without one the job is the unbroken one."""


class Missed(Exception):
    """The moment was over before the fault."""


def start_of(target: str) -> Start:
    """What starts jobs on a target. The module of each is imported only for it: Docker is asked at its import."""
    found: Start = importlib.import_module(f"tests.failures.places.{target}").start
    return found


def unbroken(target: str, strategy: str, folder: Path) -> float:
    """The figure of a strategy's job without a fault."""
    with start_of(target)(folder, strategy, None) as place:
        code = place.wait(RUN_SECONDS[target])
        figure = figure_of(strategy, place.files.result())
        assert code == 0, place.output
        assert figure is not None
        return figure


def run_cell(cell: Cell, folder: Path, expected: float) -> tuple[Run, Verdict]:
    """Returns what was seen, and the verdict. A fault that misses its moment is tried again.

    Args:
        expected: the figure of the unbroken job.

    Raises:
        Missed: it has missed it TRIES times.
    """
    for number in range(TRIES):
        with start_of(cell.target)(folder / str(number), cell.strategy, cell) as place:
            try:
                run = _run(cell, place)
            except Missed:
                continue
            return run, judge(cell, run, place.files, expected)
    raise Missed(f"{cell.name}: the fault missed its moment {TRIES} times")


def _run(cell: Cell, place: Place) -> Run:
    _until(lambda: place.files.steps(cell.strategy) > 0, cell, place)
    fault = place.aim(cell)
    _until(lambda: is_moment(cell, place.files), cell, place)
    kept, at = max(place.files.checkpoints(), default=0), time.time()
    # Whatever comes of it: a node that stays drained has no room for the next job.
    with contextlib.ExitStack() as struck:
        struck.callback(fault.lift)
        fault.strike()
        if cell.fault not in OF_THE_JOB and not was_moment(cell, place.files):
            raise Missed
        if cell.fault in LASTING:
            _until_missed(cell, place)
            struck.close()
        codes = [_wait(cell, place)]
    if cell.fault in OF_THE_JOB and codes[0] == promise(cell).codes[0]:
        place.again()
        codes.append(_wait(cell, place))
    return Run(codes, at, kept, place.output)


def _until(reached: Callable[[], bool], cell: Cell, place: Place) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not reached():
        if place.over():
            raise Missed
        assert time.monotonic() < deadline, f"{cell.name}: the moment did not come\n{place.output}"
        time.sleep(POLL_SECONDS)


def _wait(cell: Cell, place: Place) -> int:
    try:
        return place.wait(RUN_SECONDS[cell.target])
    except subprocess.TimeoutExpired:
        return HUNG


def _until_missed(cell: Cell, place: Place) -> None:
    """The length of the fault, unless the job ends without that task."""
    deadline = time.monotonic() + MISSED_SECONDS[cell.target]
    while time.monotonic() < deadline and not place.over():
        time.sleep(POLL_SECONDS)
