"""References to variables in a program's words and environment."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.job import program
from trainer.job.load import build


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--dir=$(DIR)/x", "--dir=/d/x"),
        ("$(DIR)$(DIR)", "/d/d"),
        ("$(NONE) $() $( $DIR ${DIR}", "$(NONE) $() $( $DIR ${DIR}"),
        ("$$(DIR) $$$(DIR) $$", "$(DIR) $/d $"),
    ],
)
def test_references_are_those_of_kubernetes(text: str, expected: str) -> None:
    assert program.expand(text, {"DIR": "/d"}) == expected


def test_a_variable_may_refer_to_those_before_it() -> None:
    env = {"A": "1", "B": "$(A)2", "C": "$(B)3 $(OUTSIDE)", "D": "$(E)", "E": "5", "F": "$$(A)"}
    raw: dict[str, Any] = {"name": "j", "strategy": "multi_worker_mirrored", "program": ["x"], "env": env}
    spec = build({**raw, "tasks": {"worker": {"env": {"G": "$(C)!", "A": "$(ROLE)"}}}})
    expected = {"A": "w", "B": "w2", "C": "w23 there", "D": "$(E)", "E": "5", "F": "$(A)", "G": "w23 there!"}
    assert program.variables(spec, "worker", {"OUTSIDE": "there", "ROLE": "w"}) == expected
