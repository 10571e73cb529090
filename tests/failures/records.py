"""The results of cells, by target: a file of JSON, with one line for each cell."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.run import machine
from tests.failures.cells import Cell, cells
from tests.failures.judge import Verdict

FOLDER = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Record:
    """What came of a cell."""

    outcome: str
    """goes on, new generation or started again; otherwise the cell has `broken`."""
    next_step: float | None
    """Seconds."""
    repeated: int
    accuracy: float | None
    codes: list[int]
    broken: list[str]
    load: float
    """The processes that wanted the machine's processors, on average over the last minute."""
    date: str
    commit: str


@dataclass
class Results:
    """Of one target."""

    target: str
    machine: dict[str, object] = field(default_factory=dict)
    unbroken: dict[str, float] = field(default_factory=dict)
    """By strategy, the figure of the job without a fault."""
    cells: dict[str, Record] = field(default_factory=dict)
    """By name."""

    @classmethod
    def read(cls, target: str) -> Results:
        """Those that are kept; empty if there are none."""
        path = FOLDER / f"{target}.json"
        if not path.exists():
            return cls(target)
        found = json.loads(path.read_text())
        # Of cells that are still tried.
        names = [cell.name for cell in cells(target)]
        kept = {name: Record(**found["cells"][name]) for name in names if name in found["cells"]}
        return cls(target, found["machine"], found["unbroken"], kept)

    def write(self) -> None:
        rows = [f"  {json.dumps(name)}: {json.dumps(asdict(self.cells[name]))}" for name in self._sorted()]
        head = f'{{"machine": {json.dumps(self.machine)},\n"unbroken": {json.dumps(self.unbroken)},\n"cells": {{\n'
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{self.target}.json").write_text(head + ",\n".join(rows) + "\n}}\n")

    def add(self, cell: Cell, codes: list[int], verdict: Verdict) -> Record:
        """Keeps the result of a cell."""
        outcome = "started again" if len(codes) > 1 else "new generation" if verdict.generations > 1 else "goes on"
        seconds = None if verdict.next_step is None else round(verdict.next_step, 1)
        load = round(os.getloadavg()[0], 1)
        found = Record(
            outcome, seconds, verdict.repeated, verdict.accuracy, codes, verdict.broken, load, _today(), commit()
        )
        self.machine = machine()
        self.cells[cell.name] = found
        return found

    def _sorted(self) -> list[str]:
        return [cell.name for cell in cells(self.target) if cell.name in self.cells]


def commit() -> str:
    """The commit that is checked out."""
    words = ["git", "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(words, cwd=FOLDER.parent, capture_output=True, text=True, check=True).stdout.strip()


def _today() -> str:
    return time.strftime("%Y-%m-%d")
