"""What a cell's fault leaves behind, with a job that is only an object: no engine and no cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.failures import run
from tests.failures.cells import cells
from tests.failures.files import Files
from tests.failures.run import Fault, Missed, run_cell

DRAIN = next(cell for cell in cells("kind") if cell.fault == "drain")


@dataclass
class Late:
    """A job that makes its last step while its fault strikes."""

    files: Files
    done: list[str] = field(default_factory=list)
    output = ""

    def __enter__(self) -> Late:
        return self

    def __exit__(self, *_: object) -> None:
        self.done.append("left")

    def over(self) -> bool:
        return False

    def aim(self, cell: object) -> Fault:
        return Fault(lambda: self.done.append("struck"), lambda: self.done.append("lifted"))

    def wait(self, timeout: float) -> int:
        return 0

    def again(self) -> None:
        raise AssertionError


def test_a_fault_that_missed_its_moment_is_lifted_before_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Late(Files(tmp_path, tmp_path))
    monkeypatch.setattr(run, "start_of", lambda target: lambda *_: place)
    monkeypatch.setattr(Files, "steps", lambda self, strategy: 1)
    monkeypatch.setattr(run, "is_moment", lambda cell, files: True)
    monkeypatch.setattr(run, "was_moment", lambda cell, files: False)
    with pytest.raises(Missed, match=r"the fault missed its moment 3 times"):
        run_cell(DRAIN, tmp_path, 0.0)
    assert place.done == ["struck", "lifted", "left"] * run.TRIES
