"""Lines of logs, and their times."""

from __future__ import annotations

import pytest

from trainer.debug.evidence import Log, lines, seconds


@pytest.mark.parametrize(
    ("line", "task", "text", "time"),
    [
        ("2026-11-25T00:11:18.123456789Z  a b", "worker:1", " a b", 1795565478.123456789),
        ("2026-11-25T00:11:18Z chief:0     | a | b", "chief:0", "a | b", 1795565478.0),
        ("local       | a", "local", "a", None),
        ("2026-11-25T00:11:18 a", "worker:1", "2026-11-25T00:11:18 a", None),
        ("9999-99-99T99:99:99Z a", "worker:1", "a", None),
    ],
)
def test_lines_have_the_time_and_the_task_before_them(line: str, task: str, text: str, time: float | None) -> None:
    (found,) = lines(Log("p", line, "worker:1"))
    assert (found.text, found.task, found.path) == (text, task, "p")
    assert found.time == (pytest.approx(time) if time else None)


@pytest.mark.parametrize("text", [None, "", "x", "0001-01-01T00:00:00Z", "2026-01-02T03:04:05.5+01:00"])
def test_any_text_is_a_time_or_none(text: str | None) -> None:
    assert seconds(text) in (None, -62135596800.0, 1767319445.5)
