"""The result of a job, as text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainer.model_dir import layout
from trainer.targets.show import summary


def test_a_summary_without_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for content in (None, "cut o", "[]"):
        if content:
            Path("run").mkdir(exist_ok=True)
            (layout.make_own("run") / "result.json").write_text(content)
        assert [line.split() for line in summary.summary("run").split("\n")] == [
            [],
            ["result", "run/.trainer/result.json"],
        ]
    (layout.make_own("run") / "result.json").write_text('{"version": 2}')
    first, warning, last = summary.summary("run").split("\n")
    assert (first, last.split()) == ("", ["result", "run/.trainer/result.json"])
    assert warning.startswith("warning  model_dir: run/.trainer/result.json: cannot be read: version: 2: ")


def test_a_summary_names_what_is_there_and_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "export").mkdir()
    (tmp_path / "export/model.keras").touch()
    (tmp_path / "tensorboard").mkdir()
    monkeypatch.setattr(summary, "program", lambda name: f"bin/{name}")
    rows = [line.split(maxsplit=1) for line in summary.summary(str(tmp_path)).split("\n")[2:]]
    curves = f"bin/tensorboard --logdir {tmp_path}/tensorboard"
    assert rows == [["model", f"{tmp_path}/export/model.keras"], ["next", curves]]
    monkeypatch.setattr(summary, "program", lambda name: None)
    assert curves not in summary.summary(str(tmp_path))


def test_a_program_is_named_so_that_it_can_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    beside = tmp_path / "venv/bin/tensorboard"
    beside.parent.mkdir(parents=True)
    beside.write_text("#!/bin/sh\n")
    beside.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(beside.with_name("python")))
    assert summary.program("tensorboard") == str(beside)
    monkeypatch.chdir(tmp_path)
    assert summary.program("tensorboard") == "venv/bin/tensorboard"
    assert summary.program("absent") is None
    monkeypatch.setenv("PATH", str(beside.parent))
    assert summary.program("tensorboard") == "tensorboard"
