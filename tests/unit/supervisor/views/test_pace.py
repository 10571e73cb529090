"""The remaining time, and the share of time that made new steps."""

from __future__ import annotations

import pytest

from trainer.model_dir.state import PaceCounters
from trainer.protocol.child import ChildStatus
from trainer.supervisor.views.pace import Pace


class Run:
    """Looks once a second."""

    def __init__(self, steps: int | None = 100) -> None:
        self.counters, self.now, self.step, self.steps = PaceCounters(), 0.0, 0, steps
        self.pace = Pace(self.counters, self.now)

    def look(
        self,
        seconds: int,
        steps: int = 0,
        generation: int = 1,
        *,
        saving: float = 0.0,
        pause: str | None = None,
        slowness: float = 1.0,
    ) -> None:
        """For so many seconds, each with so many steps; generation 0: none runs."""
        for _ in range(seconds):
            self.now += 1
            self.step += steps
            child = ChildStatus(
                step=self.step, steps=self.steps, seconds_saving=saving,
                evaluating=pause == "evaluating", finishing=pause == "finishing",
            )  # fmt: skip
            self.pace.look(self.now, generation, child if generation else None, slowness)


def test_the_time_before_the_first_step_is_not_useful() -> None:
    run = Run()
    run.look(10, generation=0)
    assert run.pace.goodput == 0
    run.look(11, steps=5)
    assert (run.counters.useful, run.counters.wall) == (10, 21)
    assert run.pace.goodput == 10 / 21


def test_goodput_is_unknown_before_the_job_has_run() -> None:
    assert Run().pace.goodput is None


def test_steps_that_are_made_again_after_a_loss_are_not_useful() -> None:
    run = Run()
    run.look(11, steps=10)  # to step 110
    run.look(5, generation=0)
    run.step = 50  # the checkpoint
    run.look(11, steps=10, generation=2)  # to step 160: the first seen is 60, and 5 of the 10 seconds make new ones
    assert run.counters.useful == 10 + 5
    assert run.counters.best == 160


def test_a_step_that_takes_many_seconds_counts_when_it_is_there() -> None:
    run = Run()
    run.look(1, steps=1)
    for _ in range(3):
        run.look(9)
        run.look(1, steps=1)
    assert run.counters.useful == 30


@pytest.mark.parametrize("pause", ["evaluating", "finishing"])
def test_pauses_for_checkpoints_and_validations_are_not_useful(pause: str) -> None:
    run = Run()
    run.look(5, steps=1)
    run.look(1, steps=1, saving=0.25)
    run.look(4, saving=0.25, pause=pause)
    run.look(1, steps=1, saving=0.25)
    assert run.counters.useful == 4 + 0.75 + 1
    assert run.counters.wall == 11


def test_a_job_that_is_stalled_is_not_useful() -> None:
    run = Run()
    run.look(11, steps=1)
    run.look(100)
    run.look(5, generation=0)
    run.look(1, steps=1, generation=2)
    assert run.counters.useful == 10


def test_the_rest_takes_as_long_as_recent_steps_did() -> None:
    run = Run()
    run.look(1, steps=1)
    assert run.pace.seconds_left is None
    run = Run()
    run.look(10, steps=1)
    assert run.pace.seconds_left == pytest.approx(90)
    run.look(5)  # no step: the end comes no later for that, as far as is known
    assert run.pace.seconds_left == pytest.approx(85)
    run.look(200)
    assert run.pace.seconds_left == 0


def test_while_no_step_comes_for_longer_than_usual_the_rest_takes_longer() -> None:
    run = Run()
    run.look(10, steps=1)
    run.look(50, slowness=10)
    assert run.pace.seconds_left == pytest.approx(900)
    run.look(1, steps=1)
    assert run.pace.seconds_left is not None
    assert run.pace.seconds_left < 900


def test_without_a_last_step_the_rest_is_not_known() -> None:
    run = Run(steps=None)
    run.look(10, steps=1)
    assert run.pace.seconds_left is None


def test_a_change_of_speed_shows_within_a_minute() -> None:
    run = Run(steps=1000 + 700 + 1000)
    run.look(1000, steps=1)
    run.look(70, steps=10)
    assert run.pace.seconds_left == pytest.approx(100, rel=0.1)


def test_a_new_generation_forgets_the_speed_of_the_one_before() -> None:
    run = Run()
    run.look(10, steps=1)
    run.look(1, steps=1, generation=2)
    assert run.pace.seconds_left is None


def test_the_next_chief_counts_on_and_the_time_without_a_chief_counts_too() -> None:
    run = Run()
    run.look(11, steps=1)  # 10 of these 11 seconds were useful
    run.pace = Pace(run.counters, 16.0, continues=True)
    run.now, run.step = 16.0, 5  # the checkpoint
    run.look(9, steps=1)  # to step 14: 11 steps were made before
    assert run.counters == PaceCounters(useful=10 + 3, wall=25, best=14, time=25)
    assert run.pace.goodput == 13 / 25


def test_the_time_between_a_stop_and_the_next_start_does_not_count() -> None:
    run = Run()
    run.look(11, steps=1)
    Pace(run.counters, 1000.0, continues=False).look(1001.0, 0, None)
    assert run.counters.wall == 12
