"""The result of a job, as text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainer.model_dir.best import BestCheckpoint
from trainer.model_dir.result import Result, Training
from trainer.targets.show import summary


def test_a_summary_has_the_test_figures_whatever_they_are() -> None:
    tests = {str(i): i / 100 for i in range(100)}
    training = Training(5, {"loss": 0.25, **tests}, None, None, {}, None, None)
    shown = summary.figures(Result("j", "one_device", training, 3.5, 1, [], {}, [], {}, {}, {}))
    assert shown[:4] == [("status", "succeeded"), ("steps", "5"), ("test_loss", "0.25"), ("test_0", "0")]
    assert shown[-1] == ("generations", "1")
    assert len(shown) == 3 + summary.FIGURES_SHOWN


def test_a_summary_has_a_row_for_each_export_that_is_not_equal() -> None:
    def shown(exports: dict[str, str]) -> list[tuple[str, str]]:
        training = Training(5, {}, None, None, {}, None, None, exports)
        return summary.figures(Result("j", "one_device", training, 3.5, 1, [], {}, [], {}, {}, {}))[2:]

    assert shown({"model.keras": "equal", "saved_model": "equal"}) == [("exports", "equal"), ("generations", "1")]
    assert shown({"model.keras": "differs", "saved_model": "equal"}) == [
        ("generations", "1"),
        ("export/model.keras", "differs"),
    ]
    assert shown({}) == [("generations", "1")]


def test_a_summary_has_the_best_checkpoint() -> None:
    training = Training(5, {}, None, None, {}, None, None, best=BestCheckpoint("val_loss", 4, 0.123456))
    shown = summary.figures(Result("j", "one_device", training, 3.5, 1, [], {}, [], {}, {}, {}))
    assert ("best", "val_loss=0.1235 at step 4") in shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.97123, "0.9712"),
        (1.0, "1"),
        (1.23456, "1.235"),
        (4.852776, "4.853"),
        (33.65346, "33.65"),
        (7e-7, "7e-07"),
        (-0.000123456, "-0.0001235"),
        (11195.96, "11,196"),
        (2000, "2,000"),
        (float("nan"), "nan"),
        (1e30, "1e+30"),
    ],
)
def test_a_figure_keeps_four_significant_digits(value: float, shown: str) -> None:
    assert summary.figure(value) == shown


def test_a_summary_without_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for content in (None, "cut o", "[]"):
        if content:
            Path("run").mkdir(exist_ok=True)
            Path("run/result.json").write_text(content)
        assert [line.split() for line in summary.summary("run").split("\n")] == [[], ["result", "run/result.json"]]
    Path("run/result.json").write_text('{"version": 2}')
    first, warning, last = summary.summary("run").split("\n")
    assert (first, last.split()) == ("", ["result", "run/result.json"])
    assert warning.startswith("warning  model_dir: run/result.json: cannot be read: version: 2: ")


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
