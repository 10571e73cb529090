"""What a commit tests: slow tests in turn, and the tests of a part of the tree when that part has changed.

`python -m tests.tools.rotation PART` prints that a part of PATHS "runs" or is "left out", and why; of others nothing.
Of a part of SPREAD every commit runs some tests: all of them when it has changed.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SLOW_PARTS, CELL_PARTS = 24, 40
"""In how many parts slow tests and the support table are run, and the cells of the table of failures."""
LONGEST = 40
"""After so many commits each test was run, and each part of PATHS."""

EVERY = {"image-cuda": 40}
OTHERS_EVERY = 8
"""A part of PATHS that has not changed is tested at every eighth commit; that one is gigabytes."""
SINCE = "HEAD~10"
PATHS: dict[str, tuple[str, ...]] = {
    # With all whose docstrings docs/api.md shows.
    "docs": (
        "docs", "mkdocs.yml", "README.md", "CHANGELOG.md", "trainer/__init__.py", "trainer/api", "trainer/model_dir",
        "trainer/protocol", "trainer/targets",
    ),
    "test-locks": ("pyproject.toml", "*.lock", "tests/locks", "tests/programs", "trainer/page/static/vendor"),
    "bench-smoke": ("bench",),
    "image-cuda": ("images", ":!images/README.md"),
    # Beside tf_keras, TensorFlow 2.15 and MLflow.
    "programs": (
        "examples/programs", "tests/programs", "tests/*programs.py", "tests/*mlflow*.py",
        "trainer/job/addresses.py", "trainer/job/rules/program.py", "trainer/job/rules/tracking.py",
        "trainer/job/tracker.py", "trainer/keras.py", "trainer/reporting.py", "trainer/stack_dump.py",
        "trainer/supervisor/children", "trainer/supervisor/outside",
        "trainer/track",
    ),
    "pictures": ("tests/browser", "trainer/page"),
    "compose": ("tests/compose", "trainer/targets/compose", "images"),
    "kubernetes": ("tests/kind", "trainer/targets/kubernetes", "scripts/kind.sh"),
    # Tests with inputs that are drawn.
    "properties": (
        "tests/unit/*test_any_*.py", "tests/unit/test_malformed.py", "trainer/job", "trainer/model_dir",
        "trainer/protocol", "trainer/supervisor/rendezvous", "trainer/tfjob",
    ),
    "training": ("tests/unit/training", "trainer/training"),
}  # fmt: skip
"""What decides whether each part is tested, as git's pathspecs."""
SPREAD = {"compose", "kubernetes", "properties", "training"}
"""While such a part is unchanged, each commit runs an eighth of its tests; of another part all come at one commit."""


class Turn(NamedTuple):
    """Whether a part is tested at this commit."""

    due: bool
    why: str
    changed: bool = False


@functools.cache
def turn_of(part: str) -> Turn:
    """The turn of a part of PATHS; with TRAINER_SLOW=all each is due."""
    if os.environ.get("TRAINER_SLOW") == "all":
        return Turn(True, "runs: TRAINER_SLOW=all", changed=True)
    changed = _git("diff", "--name-only", SINCE, "--", *PATHS[part])
    if changed is None:
        return Turn(True, f"runs: git does not say what has changed since {SINCE}", changed=True)
    return decide(part, changed.splitlines(), commits())


def decide(part: str, changed: list[str], commits: int) -> Turn:
    """The turn of a part of which these files have changed, at the commit of that number."""
    if changed:
        return Turn(True, f"runs: {changed[0]} has changed since {SINCE}", changed=True)
    if part in SPREAD:
        return Turn(True, f"an eighth runs: unchanged since {SINCE}")
    every = EVERY.get(part, OTHERS_EVERY)
    if left := (list(PATHS).index(part) - commits) % every:
        return Turn(False, f"left out: unchanged since {SINCE}, and its turn of every {every} commits is in {left}")
    return Turn(True, f"runs: unchanged since {SINCE}, and this is its turn of every {every} commits")


def part_is_due(part: str, test: str) -> bool:
    """Whether this commit runs a test of a part of PATHS."""
    if part not in SPREAD:
        return turn_of(part).due
    return turn_of(part).changed or due(test, OTHERS_EVERY, commits())


@functools.cache
def commits() -> int:
    """The number of commits so far; 0 if there is no git."""
    return int(_git("rev-list", "--count", "HEAD") or 0)


def due(name: str, parts: int, commits: int) -> bool:
    """Whether the part of that commit holds the test; only its name decides which part holds it."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % parts == commits % parts


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def main() -> None:
    if sys.argv[1] in PATHS:
        print(turn_of(sys.argv[1]).why)


if __name__ == "__main__":
    main()
