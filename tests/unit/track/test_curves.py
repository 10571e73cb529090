"""Curves that are read while the job writes them."""

import json
import math
from pathlib import Path

from trainer import reporting
from trainer.model_dir import layout
from trainer.track import curves
from trainer.track.curves import Curve, Record


def line(step: int, time: float | None = None, **figures: object) -> str:
    return json.dumps({"step": step, **figures, "time": float(step) if time is None else time}) + "\n"


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    curve = Curve(path, "")
    assert list(curve.read()) == []
    path.write_text(line(5, loss=0.5) + line(10, loss=0.25)[:10])
    assert list(curve.read()) == [Record(5, 5.0, {"loss": 0.5})]
    assert list(curve.read()) == []
    path.write_text(line(5, loss=0.5) + line(10, loss=0.25))
    assert list(curve.read()) == [Record(10, 10.0, {"loss": 0.25})]


def test_a_reader_that_stops_goes_on_there(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(step, loss=1.0) for step in range(5)))
    curve = Curve(path, "")
    assert next(curve.read()).step == 0
    assert [record.step for record in curve.read()] == [1, 2, 3, 4]


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    """As by a child that continues from an earlier checkpoint."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(5, loss=0.5) + line(10, loss=0.25))
    curve = Curve(path, "")
    assert len(list(curve.read())) == 2
    temporary = tmp_path / "new"
    temporary.write_text(line(5, loss=0.5) + line(10, loss=0.3))
    temporary.replace(path)
    assert [record.figures["loss"] for record in curve.read()] == [0.5, 0.3]
    path.write_text(line(5, loss=0.5))
    assert [record.step for record in curve.read()] == [5]


def test_what_is_no_record_or_no_number_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    odd = line(5, loss=math.nan, text="x", flag=True, rows={"a": 1}, huge=10**400, count=3, é=math.inf)
    path.write_text("no json\n[1]\n{}\n" + '{"step": "x", "time": 1.0}\n' + odd)
    (record,) = Curve(path, "test_").read()
    assert record.step == 5
    assert {name: str(value) for name, value in record.figures.items()} == {
        "test_loss": "nan", "test_count": "3.0", "test_é": "inf",
    }  # fmt: skip


def test_a_number_that_a_program_reports_as_text_is_one() -> None:
    figures = {name: reporting.plain(name, value) for name, value in {"a": math.nan, "b": -math.inf, "c": "x"}.items()}
    assert {name: str(value) for name, value in curves.numbers(figures).items()} == {"a": "nan", "b": "-inf"}


def test_a_job_that_logs_very_often_is_thinned_but_for_the_first_and_the_last(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    figures = {f"m{i}": 1.0 for i in range(10)}
    count, every = 20_000, 0.001
    path.write_text("".join(line(step, step * every, **figures) for step in range(count)))
    curve = Curve(path, "")
    steps = [record.step for record in curve.read()]
    allowed = (curves.BURST + count * every * curves.VALUES_PER_SECOND) / len(figures)
    assert allowed - 2 < len(steps) <= allowed
    assert steps[:100] == list(range(100))
    assert [record.step for record in curve.last()] == [count - 1]
    assert list(curve.last()) == []


def test_a_record_with_thousands_of_figures_is_not_left_out_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    figures = {f"m{i}": 1.0 for i in range(8000)}
    path.write_text("".join(line(step, step * 30.0, **figures) for step in range(4)))
    assert len(list(Curve(path, "").read())) >= 2


def test_each_file_of_a_job_has_its_names(tmp_path: Path) -> None:
    for name in ("metrics", "validation", "evaluation", "reported"):
        path = layout.curve(tmp_path, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(line(5, loss=0.5))
    found = [record.figures for curve in curves.of(str(tmp_path)) for record in curve.read()]
    assert found == [{"loss": 0.5}, {"loss": 0.5}, {"test_loss": 0.5}, {"loss": 0.5}]
