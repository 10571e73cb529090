import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tensorflow.python.summary.summary_iterator import summary_iterator

from trainer.training.outputs.curve import Curve, read


@contextmanager
def opened(model_dir: Path, resume_step: int = 0) -> Iterator[Curve]:
    """A curve; closed at the end, as it is when its process ends."""
    curve = Curve(str(model_dir), "metrics", resume_step)
    yield curve
    curve._file.close()
    curve._writer.close()


def add(model_dir: Path, resume_step: int, *steps: int) -> None:
    with opened(model_dir, resume_step) as curve:
        for step in steps:
            curve.add(step, {"loss": step / 10}, workers={})


def steps(model_dir: Path) -> list[int]:
    return [record["step"] for record in read(model_dir / "metrics.jsonl")]


def test_a_record_holds_figures_details_and_the_time(tmp_path: Path) -> None:
    with opened(tmp_path) as curve:
        curve.add(5, {"loss": 0.5}, workers={"worker:0": {"step": 3}})
        (record,) = read(tmp_path / "metrics.jsonl")
        assert record.pop("time") > 1.7e9
        assert record == {"step": 5, "loss": 0.5, "workers": {"worker:0": {"step": 3}}}, (
            "at once, not when it is closed"
        )


def test_what_was_trained_after_the_checkpoint_is_forgotten(tmp_path: Path) -> None:
    add(tmp_path, 0, 10, 20, 30, 40)
    add(tmp_path, 20, 30)
    assert steps(tmp_path) == [10, 20, 30]
    add(tmp_path, 0)
    assert steps(tmp_path) == []
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("half", ["{", '{"step": 3', '{"step": 30, "loss": 0.', "\0\0\0"])
def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path, half: str) -> None:
    add(tmp_path, 0, 10, 20)
    with (tmp_path / "metrics.jsonl").open("a", encoding="latin-1") as file:
        file.write(half)
    assert steps(tmp_path) == [10, 20]
    add(tmp_path, 20, 30)
    assert steps(tmp_path) == [10, 20, 30]


def test_there_may_be_no_curve_yet(tmp_path: Path) -> None:
    assert read(tmp_path / "metrics.jsonl") == []


def test_tensorboard_gets_the_same_figures(tmp_path: Path) -> None:
    add(tmp_path, 0, 10, 20)
    (path,) = (tmp_path / "tensorboard" / "metrics").iterdir()
    events: list[Any] = [event for event in summary_iterator(str(path)) if event.summary.value]
    assert [(event.step, event.summary.value[0].tag) for event in events] == [(10, "loss"), (20, "loss")]
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[1])["loss"] == 2.0
