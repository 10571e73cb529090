"""The history of a job, from what its chief and its place have recorded, and its logs."""

from __future__ import annotations

from trainer.debug.evidence import Evidence, Log, Moment
from trainer.debug.history import history
from trainer.protocol.facts import Began, Formed, entry


def test_the_history_is_in_order_of_time_with_each_text_once() -> None:
    logs = [
        Log("a", "1970-01-01T00:00:03Z trainer: worker:1: x\n1970-01-01T00:00:01Z step 5\n", "worker:0"),
        Log("b", "1970-01-01T00:00:02Z trainer: x\ntrainer: no time\n", "worker:1"),
    ]
    recorded = [entry(0.5, Began()), entry(1.5, Formed(1, 2), 1)]
    told = history(
        Evidence("j", "here", logs=logs, journal=recorded, moments=[Moment("its container was started", time=1.0)])
    )
    assert [(each.text, each.time) for each in told] == [
        ("its container was started", 1.0),
        ("generation 1 formed: 2 tasks", 1.5),
        ("trainer: x", 2.0),
        ("trainer: no time", None),
    ]
