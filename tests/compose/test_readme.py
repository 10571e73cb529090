"""The commands of docs/containers.md and docs/debugging.md, verbatim, with fewer steps; and the same in Python."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.compose.project import left_of, trainer
from tests.local import specs
from tests.tools.debugged import Debugged
from tests.tools.documents import commands
from trainer.api.job import load
from trainer.api.run import JobFailed
from trainer.job.errors import Exit


def test_the_commands_run() -> None:
    words = [w[1:] for w in commands("trainer", "docs/containers.md")]
    assert [w[0] for w in words] == ["render", "submit", "status", "logs", "delete"]
    for each in words:
        ended = trainer(*each, environ={"TRAINER_SET": "train.steps=20"})
        assert ended.returncode == 0, (each, ended.stderr)
        if each[0] == "logs":
            assert "done: steps=20" in ended.stdout
    assert left_of("digits-ps") == []


def test_the_command_that_collects_what_is_known(tmp_path: Path) -> None:
    words = next(w for w in commands("trainer", "docs/debugging.md") if "compose" in w)
    assert Debugged(tmp_path, *words[2:]).headline.startswith("digits-ps never started: digits-ps: no such job")


def test_python_can_do_the_same(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**specs.mirrored(steps=20), "name": "in-python"}))
    run = load(path).submit("compose")
    try:
        run.wait(180)
        assert (run.result.steps, run.result.test_accuracy > 0) == (20, True)
        lines = list(run.logs("worker:1"))
        assert {line.task for line in lines} == {"worker:1"}
        assert any("replicas_in_sync=2" in line.text for line in lines)
        assert run.delete().volume_stays
        again = load(path, {"train.seed": 3}).submit("compose")  # the volume has the result of another job
        with pytest.raises(JobFailed, match=r"the result of another job: train.seed: result 0, now 3") as caught:
            again.wait(180)
        assert caught.value.code is Exit.USER
    finally:
        run.delete(volumes=True)
    assert left_of("in-python") == []
