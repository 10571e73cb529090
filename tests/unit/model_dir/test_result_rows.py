"""A result as rows."""

from __future__ import annotations

import pytest

from trainer.model_dir.best import BestCheckpoint
from trainer.model_dir.result import Result, Training
from trainer.model_dir.result_rows import FIGURES_SHOWN, figure, rows_of


def test_rows_have_the_test_figures_whatever_they_are() -> None:
    tests = {str(i): i / 100 for i in range(100)}
    training = Training(5, {"loss": 0.25, **tests}, None, None, {}, None, None)
    shown = rows_of(Result("j", "one_device", training, 3.5, 1, [], {}, [], {}, {}, {}))
    assert shown[:4] == [("status", "succeeded"), ("steps", "5"), ("test_loss", "0.25"), ("test_0", "0")]
    assert shown[-1] == ("generations", "1")
    assert len(shown) == 3 + FIGURES_SHOWN


def test_rows_have_a_row_for_each_export_that_is_not_equal() -> None:
    def shown(exports: dict[str, str]) -> list[tuple[str, str]]:
        training = Training(5, {}, None, None, {}, None, None, exports)
        return rows_of(Result("j", "one_device", training, 3.5, 1, [], {}, [], {}, {}, {}))[2:]

    assert shown({"model.keras": "equal", "saved_model": "equal"}) == [("exports", "equal"), ("generations", "1")]
    assert shown({"model.keras": "differs", "saved_model": "equal"}) == [
        ("generations", "1"),
        ("export/model.keras", "differs"),
    ]
    assert shown({}) == [("generations", "1")]


def test_rows_have_the_best_checkpoint() -> None:
    training = Training(5, {}, None, None, {}, None, None, best=BestCheckpoint("val_loss", 4, 0.123456))
    shown = rows_of(Result("j", "one_device", training, 3.5, 1, [], {}, [], {}, {}, {}))
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
    assert figure(value) == shown
