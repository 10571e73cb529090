"""Figures at steps between those whose weights are known, and what is kept of earlier runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from bench import accuracy, learning
from bench.learning import Run
from bench.marks import Mark
from trainer.job import load


@contextmanager
def trained(network: str, strategy: str, communication: Mapping[str, Any], steps: int, seed: int) -> Iterator[Run]:
    """A run whose figure is its step, of which `every` makes faster ones."""

    def figure(step: int) -> float:
        assert step % learning.KEEP_STEPS == 0
        assert learning.KEEP_STEPS <= step <= steps
        return float(step)

    yield Run(figure, {1: 1.0, 10: 0.8, 30: 0.1}[communication.get("every", 1)])


def test_equal_seconds_are_those_of_float32_and_figures_between_kept_weights_are_interpolated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learning, "trained", trained)
    before: accuracy.Figures = {"cnn": {"bfloat16": {}}, "resnet": {"float32": {}}}
    found = accuracy.measure(["cnn"], ["every10", "every30"], 2, before, smoke=False)
    steps = accuracy.STEPS["cnn"]
    assert found["cnn"]["float32"] == {"equal_examples": [steps, steps], "equal_seconds": [steps, steps]}
    assert found["cnn"]["every10"]["equal_seconds"] == pytest.approx([steps / 0.8] * 2)
    assert found["cnn"]["every30"]["equal_seconds"] == [steps * accuracy.LONGER] * 2, "no more than it has trained"
    assert found["cnn"]["bfloat16"] == {}
    assert found["resnet"] == before["resnet"]


def test_a_window_in_which_weights_are_written_does_not_count() -> None:
    assert learning.seconds_per_step([Mark(10, 0.0), Mark(20, 5.0), Mark(30, 25.0), Mark(40, 30.0)]) == 0.5


@pytest.mark.parametrize("name", accuracy.SETTINGS)
def test_each_setting_is_a_valid_spec_whose_rounds_end_where_weights_are_kept(name: str, tmp_path: Any) -> None:
    strategy, given = accuracy.SETTINGS[name]
    tasks = {"worker": 2, **({"ps": 1} if strategy == "parameter_server" else {})}
    spec = {"name": "a", "strategy": strategy, "workload": "mnist", "tasks": tasks, "model_dir": str(tmp_path)}
    communication = load.build({**spec, "communication": given}).communication
    assert learning.KEEP_STEPS % communication.every == 0
    assert communication.warmup_steps % learning.KEEP_STEPS == 0
