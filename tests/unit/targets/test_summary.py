"""The result of a job, as text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainer.job.load import build
from trainer.targets import summary

SPEC = build({"name": "mnist-ps", "strategy": "parameter_server", "tasks": {"ps": 1, "worker": 2}})


def test_a_summary_has_the_test_figures_whatever_they_are() -> None:
    tests = {f"test_{i}": i / 100 for i in range(100)}
    shown = summary.figures({"status": "succeeded", "steps": 5, "test_loss": 0.25, **tests, "generations": 1})
    assert shown[:4] == [("status", "succeeded"), ("steps", "5"), ("test_loss", "0.25"), ("test_0", "0")]
    assert shown[-1] == ("generations", "1")
    assert len(shown) == 3 + summary.FIGURES_SHOWN


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
            Path("runs/mnist-ps").mkdir(parents=True, exist_ok=True)
            Path("runs/mnist-ps/result.json").write_text(content)
        lines = summary.summary(SPEC, "trainer check x.yaml").split("\n")
        assert [line.split() for line in lines[:2]] == [[], ["result", "runs/mnist-ps/result.json"]]
        assert lines[-1].strip() == "trainer check x.yaml"


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
    assert summary.program("absent") == "absent"
    monkeypatch.setenv("PATH", str(beside.parent))
    assert summary.program("tensorboard") == "tensorboard"
