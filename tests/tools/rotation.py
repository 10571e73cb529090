"""Which of the slow tests a commit runs: each commit another part, so that a few commits together run all."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from pathlib import Path

PARTS, TABLE_PARTS = 8, 12
"""Of the slow tests, and of the cells of the support table: `@pytest.mark.slow(parts=TABLE_PARTS)`."""


@functools.cache
def commits() -> int:
    """The number of commits so far; 0 if there is no git."""
    try:
        counted = subprocess.run(
            ["git", "rev-list", "--count", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True
        )
    except OSError:
        return 0
    return int(counted.stdout or 0)


def due(name: str, parts: int, commits: int) -> bool:
    """Whether the part of that commit holds the test; only its name decides which part holds it."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % parts == commits % parts
