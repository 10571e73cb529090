"""What is said of a job whose next step takes much longer than is usual."""

from __future__ import annotations

from trainer.model_dir.stacks import Stacks
from trainer.supervisor.views.standstill import Standstill

NOW = 1e9


def test_it_says_for_how_long_and_where_the_tasks_are_once_they_have_answered() -> None:
    still = Standstill()
    assert not still.look(0, NOW)
    assert still.text(Stacks(NOW, "before")) is None
    assert still.look(50, NOW)
    assert still.text(Stacks(NOW - 51, "before")) == "no new step for 50 s"
    where = "2 tasks wait for the batch of step 94 (slow.py:15)"
    assert still.text(Stacks(NOW, where)) == f"no new step for 50 s: {where}"
    assert not still.look(0, NOW + 1)
    assert still.text(Stacks(NOW, where)) is None


def test_the_tasks_are_asked_ever_less_often() -> None:
    still = Standstill()
    asked = [seconds for seconds in range(5, 600) if still.look(seconds, NOW + seconds)]
    assert asked == [5, 10, 20, 40, 80, 160, 320]
    assert still.look(5, NOW + 1000) is False, "it is the same standstill"
    still.look(0, NOW + 1001)
    assert still.look(5, NOW + 1006)
