"""The history of a job, from the moments and logs that its place has."""

from __future__ import annotations

from trainer.debug.facts import Facts, Log, Moment
from trainer.debug.history import history


def test_the_history_is_in_order_of_time_with_each_text_once() -> None:
    logs = [
        Log("a", "1970-01-01T00:00:03Z trainer: worker:1: x\n1970-01-01T00:00:01Z step 5\n", "worker:0"),
        Log("b", "1970-01-01T00:00:02Z trainer: x\nno time, lost (y)\n", "worker:1"),
    ]
    told = history(Facts("j", "here", logs=logs, moments=[Moment("formed", time=1.0)]))
    assert [(each.text, each.time) for each in told] == [
        ("formed", 1.0),
        ("trainer: x", 2.0),
        ("no time, lost (y)", None),
    ]
