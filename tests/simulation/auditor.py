"""Judges a history by what the documents promise, and by nothing else.

It knows the spec and the trace (tests/simulation/trace.py). It must not know trainer's supervisor: a rule that is
taken from the code agrees with the code's mistakes.
"""

from __future__ import annotations

from tests.simulation import promises_of_ends as ends
from tests.simulation import promises_of_training as training
from tests.simulation.lives import Line, Promise, lives_of
from tests.simulation.trace import History

PROMISES: tuple[Promise, ...] = (
    training.one_child_of_a_task_in_a_generation,
    training.one_trainer_of_a_supervisor,
    training.few_children,
    training.one_meaning_of_a_generation,
    training.numbers_increase,
    training.one_step_to_begin_with,
    training.newest_checkpoint,
    training.each_step_once,
    training.all_steps_of_success,
    training.alone_is_alone,
    training.all_tasks_of_a_generation,
    training.restarts_are_counted,
    training.stops_in_time,
    training.stop_keeps_the_step,
    ends.result_of_success,
    ends.nothing_is_left,
    ends.ends_in_time,
    ends.first_verdict_stands,
)


def audit(history: History) -> list[Line]:
    """Each broken promise as a sentence that names time, task and process."""
    lives = lives_of(history)
    return [line for promise in PROMISES for line in promise(lives)]
