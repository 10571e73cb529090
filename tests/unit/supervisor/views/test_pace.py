"""The remaining time, and the share of time that made new steps."""

from __future__ import annotations

import pytest

from trainer.model_dir.history import History
from trainer.supervisor.views.pace import Pace


class Run:
    """Looks once a second."""

    def __init__(self) -> None:
        self.history, self.now, self.step = History(), 0.0, 0
        self.pace = Pace(self.history, self.now)

    def look(self, seconds: int, steps: int = 0, generation: int = 1, **more: object) -> None:
        """For so many seconds, each with so many steps; generation 0: none runs."""
        for _ in range(seconds):
            self.now += 1
            self.step += steps
            self.pace.look(self.now, generation, self.step if generation else None, **more)  # type: ignore[arg-type]


def test_the_time_before_the_first_step_is_not_useful() -> None:
    run = Run()
    run.look(10, generation=0)
    run.look(11, steps=5)
    assert (run.history.useful, run.history.wall) == (10, 21)


def test_steps_that_are_made_again_after_a_loss_are_not_useful() -> None:
    run = Run()
    run.look(11, steps=10)  # to step 110
    run.look(5, generation=0)
    run.step = 50  # the checkpoint
    run.look(11, steps=10, generation=2)  # to step 160: the first seen is 60, and 5 of the 10 seconds make new ones
    assert run.history.useful == 10 + 5
    assert run.history.best == 160


def test_a_step_that_takes_many_seconds_counts_when_it_is_there() -> None:
    run = Run()
    run.look(1, steps=1)
    for _ in range(3):
        run.look(9)
        run.look(1, steps=1)
    assert run.history.useful == 30


def test_pauses_for_checkpoints_and_validations_are_not_useful() -> None:
    run = Run()
    run.look(5, steps=1)
    run.look(1, steps=1, saving=0.25)
    run.look(4, pausing=True)
    run.look(1, steps=1, saving=0.25)
    assert run.history.useful == 4 + 0.75 + 1
    assert run.history.wall == 11


def test_a_job_that_is_stalled_is_not_useful() -> None:
    run = Run()
    run.look(11, steps=1)
    run.look(100)
    run.look(5, generation=0)
    run.look(1, steps=1, generation=2)
    assert run.history.useful == 10


def test_the_rest_takes_as_long_as_recent_steps_did() -> None:
    run = Run()
    assert run.pace.seconds_left(100) is None
    run.look(1, steps=1)
    assert run.pace.seconds_left(100) is None
    run.look(9, steps=1)
    assert run.pace.seconds_left(100) == pytest.approx(90)
    run.look(10)  # no step: the end comes no later for that, as far as is known
    assert run.pace.seconds_left(100) == pytest.approx(80)
    run.look(200)
    assert run.pace.seconds_left(100) == 0
    assert run.pace.seconds_left(None) is None


def test_a_change_of_speed_shows_within_a_minute() -> None:
    run = Run()
    run.look(1000, steps=1)
    run.look(70, steps=10)
    assert run.pace.seconds_left(run.step + 1000) == pytest.approx(100, rel=0.1)


def test_a_new_generation_forgets_the_speed_of_the_one_before() -> None:
    run = Run()
    run.look(10, steps=1)
    run.look(1, steps=1, generation=2)
    assert run.pace.seconds_left(100) is None
