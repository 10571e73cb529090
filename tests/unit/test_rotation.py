import subprocess

import pytest

from tests.tools import rotation
from tests.tools.documents import ROOT

NAMES = [f"tests/local/test_x.py::test_{i}[{i % 3}]" for i in range(200)]


@pytest.mark.parametrize("parts", [rotation.PARTS, rotation.TABLE_PARTS])
def test_so_many_commits_in_a_row_run_each_test_once(parts: int) -> None:
    for first in (0, 7):
        runs = [name for commit in range(first, first + parts) for name in NAMES if rotation.due(name, parts, commit)]
        assert sorted(runs) == sorted(NAMES)


def test_the_parts_are_of_similar_size_and_only_the_name_decides() -> None:
    here = [name for name in NAMES if rotation.due(name, 2, 0)]
    assert 80 <= len(here) <= 120
    assert [name for name in reversed(NAMES) if rotation.due(name, 2, 364)] == here[::-1]


def test_commits_are_those_of_git() -> None:
    if (ROOT / ".git").exists():
        counted = subprocess.run(["git", "rev-list", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert rotation.commits() == counted.stdout.count("\n") > 0
