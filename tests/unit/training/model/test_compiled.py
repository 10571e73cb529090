"""Compiled models on two replicas, compared with Keras' own fit on one device with the whole batch."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.training import models

pytestmark = pytest.mark.part("training")

NOT_TRACKED: dict[str, set[str]] = {
    "autoencoder": {"reconstruction"},
    "x alone": {"reconstruction"},
    "distillation": {"loss"},
    "a sum in a dict": {"value", "loss"},
}
"""Values that train_step returns without a metric: Keras shows those of the last batch, or an unused metric."""
LEFT_OUT: dict[str, set[str]] = {"own metrics": {"largest", "never"}}


class Results:
    """By case, as soon as each is there."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self._found = process, dict[str, Any]()

    def __getitem__(self, case: str) -> Any:
        while case not in self._found:
            assert self._process.stdout
            found = json.loads(self._process.stdout.readline())
            self._found[found["case"]] = found
        return self._found[case]


@pytest.fixture(scope="module")
def results() -> Iterator[Results]:
    command = [sys.executable, "-m", "tests.unit.training.two_replicas", *models.CASES]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        yield Results(process)
        process.kill()


@pytest.mark.parametrize("case", models.CASES)
def test_two_replicas_train_as_one_with_the_whole_batch(case: str, results: Results) -> None:
    result = results[case]
    exact = case not in models.FLOAT16
    assert result["apart"] < (1e-6 if exact else 0.01) < (1e-3 if exact else 0.1) < result["moved"]
    unlike = NOT_TRACKED.get(case, set())
    expected = {name: value for name, value in result["expected"].items() if name not in LEFT_OUT.get(case, ())}
    assert set(result["found"]) == set(expected)
    for name in expected.keys() - unlike:
        assert result["found"][name] == pytest.approx(expected[name], rel=1e-4 if exact else 0.02), name


def test_values_that_are_no_metrics_are_averaged(results: Results) -> None:
    found = results["autoencoder"]["found"]
    assert found["reconstruction"] == pytest.approx(found["loss"] - 0.1 * found["kl_loss"], rel=1e-5)
    assert 0.5 < results["distillation"]["found"]["loss"] < 2


def test_a_metric_that_does_not_add_up_is_left_out_and_named(results: Results) -> None:
    what = "warning: workload: digits: metric "
    starts = [
        f"{what}largest: what update_state adds to it depends on its earlier values, or cannot be tried",
        f"{what}never: reset_state leaves a variable as it is that update_state changes, so it may not add up",
    ]
    for line, start in zip(results["own metrics"]["warnings"], starts, strict=True):
        assert line.startswith(start)
    assert [case for case in models.CASES if results[case]["warnings"]] == ["own metrics"]
