import subprocess

import pytest

from tests.failures.cells import cells
from tests.failures.test_cells import turn
from tests.tools import rotation
from tests.tools.documents import ROOT

NAMES = [f"tests/local/test_x.py::test_{i}[{i % 3}]" for i in range(400)]


@pytest.mark.parametrize("parts", [rotation.SLOW_PARTS, rotation.CELL_PARTS, rotation.OTHERS_EVERY])
def test_so_many_commits_in_a_row_run_each_test_once(parts: int) -> None:
    assert parts <= rotation.LONGEST
    for first in (0, 7):
        runs = [name for commit in range(first, first + parts) for name in NAMES if rotation.due(name, parts, commit)]
        assert sorted(runs) == sorted(NAMES)


def test_each_commit_kills_a_worker_and_a_chief_on_each_target() -> None:
    turns: dict[tuple[str, str, int], list[int]] = {}
    for cell in cells():
        marks = turn(cell).kwargs
        if cell.fault == "kill" and cell.task in ("worker", "chief"):
            turns.setdefault((cell.target, cell.task, marks["parts"]), []).append(marks["turn"])
        else:
            assert marks == {"parts": rotation.CELL_PARTS}
    assert len(turns) == 3 * 2
    for (_, _, parts), numbers in turns.items():
        assert sorted(numbers) == list(range(parts))
        assert parts <= rotation.LONGEST


@pytest.mark.parametrize("part", rotation.PATHS)
def test_a_part_runs_when_it_has_changed_and_else_once_in_so_many_commits(part: str) -> None:
    assert rotation.decide(part, ["docs/x.md"], 5) == (True, "runs: docs/x.md has changed since HEAD~10", True)
    if part in rotation.SPREAD:
        assert not rotation.decide(part, [], 5).changed
        return
    every = rotation.EVERY.get(part, rotation.OTHERS_EVERY)
    turns = [rotation.decide(part, [], commit) for commit in range(100, 100 + every)]
    assert sum(turn.due for turn in turns) == 1
    assert all(turn.why.startswith("runs: " if turn.due else "left out: ") for turn in turns)
    assert every <= rotation.LONGEST


@pytest.mark.parametrize("part", rotation.PATHS)
def test_the_paths_of_a_part_exist(part: str) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("git knows the files")
    for path in rotation.PATHS[part]:
        assert subprocess.run(["git", "ls-files", path], cwd=ROOT, capture_output=True, check=True).stdout, path


def test_commits_are_those_of_git() -> None:
    if (ROOT / ".git").exists():
        counted = subprocess.run(["git", "rev-list", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert rotation.commits() == counted.stdout.count("\n") > 0
