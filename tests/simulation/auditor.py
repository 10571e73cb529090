"""Judges a history by what the documents promise, and by nothing else.

It knows the spec and the trace (tests/simulation/trace.py). It must not know trainer's supervisor: a rule that is
taken from the code agrees with the code's mistakes.
"""

from __future__ import annotations

from tests.simulation import promises_of_codes as codes
from tests.simulation import promises_of_ends as ends
from tests.simulation import promises_of_files as files
from tests.simulation import promises_of_notice as notice
from tests.simulation import promises_of_stops as stops
from tests.simulation import promises_of_training as training
from tests.simulation.lives import Line, Promise, lives_of
from tests.simulation.trace import History

PROMISES: tuple[Promise, ...] = (
    notice.silence_is_noticed,
    notice.hangs_are_noticed,
    training.one_child_of_a_task_in_a_generation,
    training.one_trainer_of_a_supervisor,
    training.few_children,
    training.three_standbys,
    training.one_meaning_of_a_generation,
    training.numbers_increase,
    training.one_step_to_begin_with,
    training.newest_checkpoint,
    training.each_step_once,
    training.all_steps_of_success,
    training.alone_is_alone,
    training.all_tasks_of_a_generation,
    training.restarts_are_counted,
    files.only_the_newest_chief_writes,
    files.no_checkpoint_of_an_earlier_chief,
    files.a_successor_waits,
    files.lines_of_the_journal,
    files.terms_increase,
    files.generations_in_the_journal,
    files.end_in_the_files,
    files.state_of_the_end,
    files.result_is_right,
    stops.stops_in_time,
    stops.stop_keeps_the_step,
    stops.all_tasks_end_as_the_chief,
    stops.replaced_tasks_end,
    codes.codes_mean_what_the_table_says,
    ends.result_of_success,
    ends.nothing_is_left,
    ends.ends_in_time,
    ends.in_time_for_the_job,
    ends.first_verdict_stands,
    ends.few_faults_end_in_success,
    ends.errors_are_lines,
    ends.failures_have_a_line,
    ends.waits_are_logged,
)


def audit(history: History) -> list[Line]:
    """Each broken promise as a sentence that names time, task and process."""
    lives = lives_of(history)
    return [line for promise in PROMISES for line in promise(lives)]
