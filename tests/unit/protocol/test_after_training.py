"""What a job does after its last step, in words."""

from __future__ import annotations

import pytest

from trainer.protocol.after_training import CHECKS, EVALUATES, EXPORTS, SAVES, stage


@pytest.mark.parametrize(
    ("now", "checks", "text"),
    [
        (SAVES, True, f"{SAVES}; then {EVALUATES}, {EXPORTS}, {CHECKS}"),
        (EVALUATES, False, "evaluating on the test data, batch 3 of 10; then saving the exports"),
        (EXPORTS, True, "saving the exports; then checking the exports"),
        (EXPORTS, False, "saving the exports"),
        (CHECKS, True, "checking the exports"),
    ],
)  # fmt: skip
def test_a_stage_says_what_is_left(now: str, checks: bool, text: str) -> None:
    assert stage(now, checks=checks, progress="batch 3 of 10" if now == EVALUATES else "") == text
