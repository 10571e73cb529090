"""The history of a job: bounded in time and in tasks, and the same after it was written and read."""

from __future__ import annotations

import json
import math
import tracemalloc
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from trainer.model_dir import history, layout
from trainer.model_dir.history import JOB_POINTS, MARKS_OF_A_KIND, History, Mark, Series

TASK = ("step", "examples_per_second", "input", "compute", "wait", "network", "cpu", "memory", "received", "sent")


def rows(series: Series) -> Any:
    return json.loads(series.text())


def test_a_full_series_keeps_every_second_point_and_takes_half_as_many() -> None:
    series = Series(limit=8, interval=1.0)
    taken = []
    for second in range(100):
        if series.due(second):
            series.add(second, {("step",): second})
            taken.append(second)
        assert len(series.time) <= 8
    found = rows(series)
    assert found["step"] == found["time"] == [0, 16, 32, 48, 64, 80, 96]
    assert len(taken) < 40


def test_a_job_of_a_month_has_points_from_its_begin_to_its_end() -> None:
    series, month = Series(JOB_POINTS, 1.0), 30 * 24 * 3600
    second = 0.0
    while second < month:
        series.add(second, {("loss",): 1.0})
        second = series.time[-1] + series.interval
    assert JOB_POINTS / 2 <= len(series.time) <= JOB_POINTS
    assert (series.time[0], series.time[-1] > 0.99 * month) == (0.0, True)


def test_a_clock_that_is_set_back_does_not_stop_a_series() -> None:
    series = Series(8, 60.0)
    series.add(1e9, {})
    assert not series.due(1e9 + 59)
    assert series.due(1e9 - 3600)


def test_a_column_that_comes_later_is_unknown_before() -> None:
    series = Series(8, 1.0)
    series.add(1, {("loss",): 0.5, ("cpu",): None})
    series.add(2, {("loss",): None, ("metrics", "accuracy"): 0.25})
    series.add(3, {("metrics", "accuracy"): math.nan, ("metrics", "big"): 1e300})
    assert rows(series) == {
        "time": [1, 2, 3],
        "loss": [0.5, None, None],
        "metrics": {"accuracy": [None, 0.25, None], "big": [None, None, None]},
    }


def test_a_step_has_all_its_digits_and_a_name_its_quotes() -> None:
    series = Series(8, 1.0)
    series.add(1, {("step",): 123456789012, ("metrics", 'a "b"\n</script>'): 1 / 3})
    assert rows(series)["step"] == [123456789012]
    assert rows(series)["metrics"] == {'a "b"\n</script>': [0.333333]}


def filled(tasks: int, seconds: int) -> History:
    """Of a job that has run for so long, with all figures of each task."""
    made = History()
    made.fit(tasks)
    for second in range(0, seconds, 5):
        if made.job.due(second):
            made.job.add(second, {("step",): second, ("loss",): 1 / (1 + second), ("metrics", "accuracy"): 0.5})
        if made.tasks.due(second):
            made.tasks.add(second, {(f"worker:{n}", name): second * n + 0.123 for n in range(tasks) for name in TASK})
    return made


def test_the_history_of_a_thousand_tasks_takes_less_than_15_mb() -> None:
    tracemalloc.start()
    made = filled(1000, 1500)
    used, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 15e6
    text = made.text()
    assert len(json.loads(text)["tasks"]["worker:999"]["cpu"]) >= 15
    assert len(text) + used < 15e6


def test_few_tasks_have_as_many_points_as_the_job() -> None:
    made = filled(3, 4000)
    found = json.loads(made.text())
    assert len(found["tasks"]["worker:2"]["cpu"]) >= JOB_POINTS / 2
    assert found["tasks"]["worker:2"]["time"] == found["tasks"]["worker:0"]["time"]


def document(of: History, **more: object) -> dict[str, Any]:
    return {"version": 2, "counters": asdict(of.counters()), "history": json.loads(of.text()), **more}


def test_it_is_the_same_after_it_was_written_and_read(tmp_path: Path) -> None:
    made = filled(3, 1000)
    made.mark(Mark(1.5, "lost", "worker:1 lost", "worker:1", 2))
    made.mark(Mark(2.5, "checkpoint", "checkpoint of step 5", None, 2, 5, bytes=100, seconds=0.25))
    history.save(str(tmp_path), [json.dumps(document(made))])
    found = history.load(str(tmp_path))
    assert found is not None
    assert (found.marks, found.counters()) == (made.marks, made.counters())
    before, after = json.loads(made.text()), json.loads(found.text())
    assert after["job"]["loss"] == [*before["job"]["loss"], None]  # a gap, while no chief ran
    assert after["tasks"]["worker:1"]["cpu"] == [*before["tasks"]["worker:1"]["cpu"], None]


def test_where_nothing_was_kept_nothing_is_read(tmp_path: Path) -> None:
    assert history.load(str(tmp_path)) is None


GOOD = document(filled(2, 20))
BAD = {
    "nothing": b"", "half": json.dumps(GOOD).encode()[:100], "a list": b"[]", "no history": {"version": 1},
    "a newer version": {**GOOD, "version": 3},
    "columns of different lengths": {**GOOD, "history": {**GOOD["history"], "job": {"time": [1, 2], "loss": [1]}}},
    "text in a column": {**GOOD, "history": {**GOOD["history"], "job": {"time": [1], "loss": ["x"]}}},
    "a mark without a time": {**GOOD, "history": {**GOOD["history"], "marks": [{"kind": "lost", "text": ""}]}},
    "no counters": {key: value for key, value in GOOD.items() if key != "counters"},
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_history_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    body = BAD[what]
    (layout.make_own(tmp_path) / "history.json").write_bytes(
        body if isinstance(body, bytes) else json.dumps(body).encode()
    )
    with pytest.raises(ValueError, match=r"\S") as caught:
        history.load(str(tmp_path))
    assert str(caught.value).isprintable()


def test_of_many_marks_of_a_kind_some_go_evenly_and_the_others_stay() -> None:
    made = History()
    made.mark(Mark(0.0, "formed", "generation 1 formed"))
    for number in range(5000):
        made.mark(Mark(float(number), "checkpoint", "", step=number))
    steps = [mark.step for mark in made.marks if mark.kind == "checkpoint"]
    assert len(steps) <= MARKS_OF_A_KIND
    assert (steps[0], steps[-1]) == (0, 4999)
    assert sum(mark.kind == "formed" for mark in made.marks) == 1


@pytest.mark.parametrize("count", [1, MARKS_OF_A_KIND, MARKS_OF_A_KIND + 1, 2 * MARKS_OF_A_KIND, 5000])
def test_of_the_many_marks_of_a_journal_some_of_each_kind_are_shown_in_the_order_of_time(count: int) -> None:
    saved = [Mark(float(number), "checkpoint", "", step=number) for number in range(count)]
    found = history.thinned([*saved, Mark(0.5, "formed", "generation 1 formed")])
    steps = [mark.step for mark in found if mark.kind == "checkpoint"]
    assert min(count, MARKS_OF_A_KIND // 2) <= len(steps) <= MARKS_OF_A_KIND
    assert (steps[0], steps[-1]) == (0, count - 1)
    assert sum(mark.kind == "formed" for mark in found) == 1
    assert found == sorted(found, key=lambda mark: mark.time)


def test_no_marks_stay_none() -> None:
    assert history.thinned([]) == []


def test_a_copy_does_not_change_with_the_original() -> None:
    made = filled(2, 20)
    copy, before = made.copy(), made.text()
    made.job.add(1000, {("loss",): 9.0})
    made.tasks.add(1000, {("worker:7", "cpu"): 1.0})
    made.mark(Mark(1.0, "lost", ""))
    assert copy.text() == before
