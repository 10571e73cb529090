"""Maps every row and sentence of "How it behaves" in docs/operating.md to the tests that prove it."""

from __future__ import annotations

import ast
import fnmatch
import functools
import re

from tests.failures.cells import cells
from tests.tools.documents import PAGES, ROOT

TESTS = {
    # "cells" names cells of tests/failures, as in a shell.
    # The rows of the table, by event.
    "a worker dies or its child hangs, parameter_server": [
        "cells */parameter_server/worker/kill/*",
        "cells local/parameter_server/worker/crash/*",
        "cells local/parameter_server/worker/hang/*",
        "unit/supervisor/task/test_clock.py::test_a_suspended_supervisor_does_not_consider_its_child_hung",
        "unit/supervisor/rendezvous/test_policy.py::test_a_loss_re_forms_or_leaves_the_others_alone",
    ],
    "a worker falls silent, parameter_server": [
        "local/test_silent_workers.py::test_the_others_go_on_and_end_without_it",
        "local/test_silent_workers.py::test_it_may_come_back",
    ],
    "any other task, except the evaluator, dies, or its child hangs": [
        "cells */parameter_server/chief/kill/*",
        "cells */parameter_server/ps/kill/*",
        "cells */multi_worker_mirrored/*/kill/*",
        "cells */graph/*/kill/*",
        "cells local/*/hang/*",
    ],
    "a supervisor is suspended for a while": [
        "local/test_recovery.py::test_a_suspended_chief_considers_no_task_lost_or_hung",
    ],
    "SIGTERM": [
        "local/test_recovery.py::test_sigterm_keeps_a_checkpoint_of_the_current_step_and_a_rerun_resumes_there",
        "cells */job/stop-all/*",
    ],
    "slow steps": [
        "local/test_slow_steps.py::test_sigterm_saves_the_step_under_way",
        "local/test_slow_steps.py::test_a_step_that_takes_longer_than_a_stop_may_is_logged_with_the_fix",
    ],
    "tasks copy data": [
        "unit/supervisor/rendezvous/test_waiting.py::test_a_task_that_copies_data_is_awaited_as_long_as_its_copy_grows",
        "unit/supervisor/rendezvous/test_waiting.py::test_a_copy_that_does_not_grow_ends_the_job",
        "local/test_data.py::test_data_are_copied_once_for_all_tasks_of_a_node",
    ],
    "a task has not come yet, or is lost": [
        "unit/supervisor/rendezvous/test_waiting.py::"
        "test_the_deadline_of_the_start_holds_until_a_first_generation_and_that_of_a_loss_later",
        "local/test_task.py::test_a_task_that_never_comes_is_named_at_the_deadline_by_all",
        "kind/test_late.py::test_a_worker_that_comes_minutes_after_its_chief_and_a_chief_after_its_worker_train",
    ],
    "a task reports, but does not answer": [
        "unit/supervisor/rendezvous/test_waiting.py::"
        "test_a_task_that_reports_and_does_not_answer_at_its_address_ends_the_job_long_before_the_deadline",
        "local/test_task.py::test_a_wrong_address_is_named_with_its_reason",
    ],
    "the chief has not come yet": [
        "unit/supervisor/task/test_follower.py::test_a_task_waits_for_its_first_word_longer_than_for_the_next",
    ],
    "a task has a different cluster": [
        "kind/test_late.py::test_a_pod_with_another_spec_ends_the_job_within_seconds",
        "local/test_task.py::test_another_cluster_json_is_refused_at_once_and_the_job_ends",
        "local/test_task.py::test_another_tensorflow_version_is_refused_with_both_versions",
        "local/test_task.py::test_another_workload_file_is_refused_with_its_name",
        "local/test_task.py::test_another_secret_is_refused_and_neither_is_printed",
    ],
    "the workload file, a module beside it, or a file of `code` is edited": [
        "local/test_edited_workload.py::test_a_synchronous_job_ends_when_a_child_would_load_another_module",
        "local/test_edited_workload.py::test_a_parameter_server_job_goes_on_until_its_coordinator_would_load_another_file",
    ],
    "the chief is done, or has failed": [
        "local/test_jobs.py::test_parameter_server_trains_digits_and_every_task_ends_by_itself",
        "local/test_task.py::test_a_late_task_is_notified_by_a_chief_that_was_refused",
        "kind/test_late.py::test_a_pod_that_comes_after_the_chief_is_done_ends_well",
        "kind/test_late.py::test_a_pod_that_comes_after_the_chief_has_failed_is_not_replaced",
    ],
    "the evaluator dies, fails or takes longer": [
        "local/test_evaluator.py::test_a_last_checkpoint_that_is_not_scored_is_a_warning_and_exporters_run",
        "local/test_evaluator.py::test_checkpoints_that_are_pruned_while_the_evaluator_reads_them_do_no_harm",
    ],
    "validation and callbacks at the end of an epoch, or reading the test data": [
        "unit/supervisor/rendezvous/test_progress.py::test_a_validation_at_the_end_of_an_epoch_has_the_deadline_of_an_evaluation",
        "unit/supervisor/rendezvous/test_progress.py::test_reading_test_data_before_the_first_step_has_the_deadline_of_an_evaluation",
    ],
    "the chief's final evaluation takes longer": [
        "local/test_evaluator.py::test_a_final_evaluation_that_never_ends_keeps_the_checkpoint_and_ends_the_job",
        "unit/training/inputs/test_datasets.py::test_an_evaluation_over_endless_data_is_refused",
    ],
    "NaN loss, full disk, broken workload or data": [
        "local/test_failures.py::test_a_loss_that_is_not_finite_stops_the_job_with_its_step",
        "local/test_failures.py::test_a_full_disk_ends_the_job_with_the_size_and_nothing_half_written",
        "local/test_failures.py::test_an_exception_in_the_workload_names_file_and_line",
        "local/test_failures.py::test_an_exception_in_a_generator_is_no_lost_peer_and_names_file_and_line",
    ],
    "A ps-worker that comes back goes on": [
        "local/test_records.py::test_a_ps_worker_that_is_killed_goes_on_near_the_step_that_was_reached",
    ],
    "under multi_worker_mirrored tasks differ": [
        "unit/training/weights/test_agreement.py::test_a_task_that_differs_from_the_chief_says_where",
        "unit/training/weights/test_agreement.py::test_other_contents_of_arrays_are_a_warning",
    ],
    "weights of replicas are not equal": [
        "unit/training/weights/test_agreement.py"
        "::test_weights_that_are_not_equal_are_named_on_all_tasks_and_rounding_is_told_once",
    ],
    "repeated crash at the same step": [
        "local/test_failures.py::test_a_crash_at_the_same_step_of_each_generation_ends_the_job",
    ],
    "a task's child, the process that runs TensorFlow, ends": [
        "local/test_recovery.py::test_processes_that_a_workload_forks_end_with_its_child",
    ],
    "a standby, the spare child": [
        "unit/supervisor/task/test_agent.py::test_a_standby_that_fails_is_logged_and_not_restarted_forever"
    ],
    "a task that could not be reached comes back": [
        "local/test_task.py::test_a_chief_that_was_replaced_while_it_could_not_run_writes_nothing_more_and_ends",
        "unit/supervisor/chief/test_fencing.py::test_a_worker_that_was_replaced_does_not_come_back",
        "kind/test_nodes.py::test_a_chief_that_nobody_reaches_writes_nothing_once_another_has_its_place",
        "cells kind/*/chief/power/*",
    ],
    "a damaged checkpoint": ["local/test_failures.py::test_a_truncated_checkpoint_is_skipped_and_logged"],
    "float16: the sum of the gradients": [
        "local/test_float16.py::test_a_step_that_overflows_is_skipped_by_all_and_not_counted",
        "local/test_float16.py::test_a_resumed_run_reads_on_after_the_skipped_batches_and_has_the_same_weights",
    ],
    # The sentences below it, by their first words.
    "Under multi_worker_mirrored on CPUs a killed and resumed run": [
        "local/test_recovery.py::test_a_killed_and_resumed_run_has_the_same_weights_bit_for_bit",
        "local/test_recovery.py::test_one_process_with_the_global_batch_has_the_same_loss_curve_as_two_with_half",
    ],
    "Under parameter_server every checkpoint is one state": [
        "local/test_exact_steps.py::test_each_checkpoint_is_the_state_at_the_step_that_it_names",
        "local/test_exact_steps.py::test_after_kills_of_every_kind_of_task_the_steps_are_exact",
        "local/test_exact_steps.py::test_sigterm_keeps_the_state_at_the_step_that_it_names",
    ],
    "For a checkpoint each worker": [
        "local/test_exact_steps.py::test_each_checkpoint_is_the_state_at_the_step_that_it_names"
    ],
}

LIMITS: list[str] = []
"""Sentences that promise nothing."""


def promises() -> list[str]:
    """The first cells of the section's table, and the sentences of its text."""
    text = PAGES["docs/operating.md"]
    section = re.split(r"^##+ ", text.partition("\n## How it behaves\n")[2], flags=re.MULTILINE)[0]
    rows: list[str] = []
    prose: list[str] = []
    for line in section.splitlines():
        (rows if line.startswith("|") else prose).append(line)
    events = [row.split("|")[1].strip() for row in rows[2:]]
    sentences = re.split(r"(?<=[.:]) (?=[A-Z])", " ".join(" ".join(prose).split()))
    return events + [sentence for sentence in sentences if not sentence.startswith(tuple(LIMITS))]


def test_each_promise_has_its_tests_and_nothing_else_is_listed() -> None:
    assert [promise for promise in promises() if not promise.startswith(tuple(TESTS))] == [], (
        "name their tests in TESTS"
    )
    assert [begin for begin in TESTS if not any(each.startswith(begin) for each in promises())] == []


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ") and line != "| event | outcome |"]


def test_the_readme_promises_nothing_else() -> None:
    section = re.split(r"^##+ ", PAGES["README.md"].partition("\n## What happens when a task dies\n")[2], flags=re.M)[0]
    assert rows(section)
    assert set(rows(section)) <= set(rows(PAGES["docs/operating.md"]))


@functools.cache
def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def there(test: str) -> bool:
    if test.startswith("cells "):
        return any(fnmatch.fnmatch(cell.name, test.removeprefix("cells ")) for cell in cells())
    file, _, name = test.partition("::")
    return name in functions(file)


def test_the_tests_exist() -> None:
    assert [test for tests in TESTS.values() for test in tests if not there(test)] == []
