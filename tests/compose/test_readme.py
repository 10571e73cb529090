"""The commands of docs/containers.md, verbatim and in order, with fewer steps."""

from __future__ import annotations

from tests.compose.project import left_of, trainer
from tests.documents import commands


def test_the_commands_run() -> None:
    words = [w[1:] for w in commands("trainer", "docs/containers.md")]
    assert [w[0] for w in words] == ["render", "submit", "status", "logs", "delete"]
    for each in words:
        ended = trainer(*each, environ={"TRAINER_SET": "train.steps=20"})
        assert ended.returncode == 0, (each, ended.stderr)
        if each[0] == "logs":
            assert "done: steps=20" in ended.stdout
    assert left_of("digits-ps") == []
