"""The figures of a result, in one line."""

from __future__ import annotations

import pytest

from trainer.model_dir.result import Computed, Training
from trainer.protocol.events import Done
from trainer.supervisor.task import figures as formats


def trained(**test: float) -> Training:
    return Training(7, test, None, None, {}, None, None)


@pytest.mark.parametrize(
    ("figures", "line"),
    [
        (trained(loss=0.123456, top=1.0), "done: steps=7 test_loss=0.1235 test_top=1 generations=2"),
        (trained(), "done: steps=7 generations=2"),
        (Computed({"y": 238, "how": "right", "all": [1, 2], "by": {}}), "done: y=238 how=right generations=2"),
        (Computed({"all": [1, 2]}), "done: generations=2"),
        (Computed({}), "done: generations=2"),
        (Computed({"text": "x" * 5000}), f"done: text={'x' * 995} generations=2"),
    ],
)
def test_a_job_ends_with_its_figures(figures: Training | Computed, line: str) -> None:
    assert formats.line(figures, 2) == line


@pytest.mark.parametrize("best", [None, {}, {"metric": "a", "step": "1", "value": 0.5}, {"metric": 1}])
def test_a_best_checkpoint_that_is_none_is_left_out(best: dict[str, object] | None) -> None:
    assert formats.best_of(Done(best=best)) is None
