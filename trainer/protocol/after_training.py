"""What a job that trains does after its last step, in words: what runs, and what is left to do."""

from __future__ import annotations

SAVES, EVALUATES, EXPORTS, CHECKS = (
    "saving the last checkpoint",
    "evaluating on the test data",
    "saving the exports",
    "checking the exports",
)
PROGRAM = "waiting for the programs to end"
_ORDER = (SAVES, EVALUATES, EXPORTS, CHECKS)


def stage(now: str, *, checks: bool, progress: str = "") -> str:
    """A stage and those after it, as `evaluating on the test data, batch 3 of 10; then saving the exports`.

    Args:
        checks: whether exports are loaded again (check_exports).
        progress: how far the stage is.
    """
    left = [each for each in _ORDER[_ORDER.index(now) + 1 :] if checks or each != CHECKS]
    done = f"{now}, {progress}" if progress else now
    return f"{done}; then {', '.join(left)}" if left else done
