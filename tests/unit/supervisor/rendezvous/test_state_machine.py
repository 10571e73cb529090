"""The chief's state machine, with a fake clock."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import trainer
from tests.unit.supervisor.jobs import KILLED, LOST, PROGRESS, PS, REJOIN, START, Job, failed, lose_child, step
from trainer.job.errors import Exit
from trainer.protocol.child import ChildStatus
from trainer.protocol.facts import Back, Cause, Ended, Formed, Loss, Lost, Note, Scored
from trainer.protocol.reports import Reply, answer, read_answer
from trainer.supervisor.rendezvous.chronicle import EVENTS_KEPT
from trainer.supervisor.views import snapshot

PACKAGE = str(Path(trainer.__file__).parent)

# Forming. -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [{"worker": 3}, {"chief": 1, "worker": 2}, PS, {**PS, "evaluator": 1}])
def test_it_forms_when_all_are_there_and_reachable(tasks: dict[str, int]) -> None:
    job = Job(tasks, step=700, generation=4)
    *others, last = job.core.tasks.required
    job.arrive(*others)
    assert job.report(last) == Reply("forming", 4, 0, version=1)
    job.reach(last)
    assert job.report(last) == Reply("running", 5, 700, version=2)
    assert job.logged == ["generation 5 formed: " + f"{len(job.core.tasks.required)} tasks"]
    assert job.facts == [Formed(5, len(job.core.tasks.required))]


def test_the_order_in_which_tasks_report_does_not_matter() -> None:
    job = Job()
    job.arrive("worker:2", "worker:1", "worker:0")
    assert job.core.phase == "running"


@pytest.mark.parametrize("running", [False, True], ids=["forming", "running"])
def test_a_report_is_no_more_work_with_more_tasks(running: bool) -> None:
    def lines_run(workers: int) -> int:
        count = 0

        def trace(frame: FrameType, *_: Any) -> Any:
            nonlocal count
            # A garbage collection may run finalizers of earlier tests here.
            count += frame.f_code.co_filename.startswith(PACKAGE)
            return trace

        job = Job({"worker": workers})
        if running:
            job.run()
        else:
            job.arrive(*job.core.tasks.required[:-1])
        sys.settrace(trace)
        job.report("worker:0")
        sys.settrace(None)
        return count

    assert lines_run(4) == lines_run(400)


# Each: what a task reports or does, and why the cluster waits for it.
IN_THE_WAY: list[tuple[dict[str, Any], str | None, str]] = [
    ({"generation": 1}, None, "its child of the last generation still runs"),
    ({"leaving": True}, None, "was asked to stop"),
    ({}, "10.0.0.1:3222 refused", "10.0.0.1:3222 refused"),
]


@pytest.mark.parametrize(("changes", "problem", "why"), IN_THE_WAY)
def test_one_task_that_is_not_ready_keeps_the_cluster_from_forming(
    changes: dict[str, Any], problem: str | None, why: str
) -> None:
    job = Job()
    job.arrive("worker:0", "worker:2")
    job.report("worker:1", **changes)
    job.reach("worker:1", problem)
    assert job.core.tasks.waiting_for(job.now) == f"worker:1: {why}"
    job.report("worker:1", generation=0, leaving=False)
    job.reach("worker:1")
    assert job.core.phase == "running"


def test_a_verdict_on_an_earlier_process_does_not_apply_to_this_one() -> None:
    job = Job({"worker": 1})
    job.report("worker:0")
    job.core.reachable("worker:0", "another", None, job.now)
    assert job.core.tasks.waiting_for(job.now) == "worker:0: its address was not tried yet"


def test_a_refusal_has_the_chief_s_term() -> None:
    job = Job()
    job.core.term = 4
    job.report("worker:0")
    assert job.report("worker:1", spec="other").term == 4


@pytest.mark.parametrize("step", [2**31, 2**63 - 1])
def test_a_step_is_sent_as_far_as_a_program_may_report_it(step: int) -> None:
    job = Job()
    job.run()
    job.report(job.chief, status=ChildStatus(step=step))
    assert read_answer(answer(job.report("worker:1"))).step == step


def test_a_file_name_that_is_not_utf8_leaves_replies_readable() -> None:
    job = Job()
    job.run()
    job.report(job.chief, loss=failed(Exit.USER, "/data/caf\udce9.csv: cannot be read"))
    assert read_answer(answer(job.report("worker:1"))).message == "worker:0: /data/caf .csv: cannot be read"


def test_of_many_missing_tasks_a_few_are_named_and_the_rest_counted() -> None:
    job = Job({"worker": 1000})
    job.arrive("worker:0")
    line = job.core.tasks.summary(job.now)
    assert line.startswith("1 of 1,000 tasks are ready; worker:1: has not reported (not dialled yet); worker:2: ")
    assert line.endswith("worker:3: has not reported (not dialled yet); and 996 others")
    job.wait(START + 1)
    assert job.core.message.endswith("; and 996 others")


def test_the_last_step_is_sent_even_if_no_report_contained_it() -> None:
    job = Job({**PS, "evaluator": 1})
    job.run()
    job.report("chief:0", status=ChildStatus(step=90))
    job.core.end(Exit.OK, "", 100)
    assert job.report("evaluator:0").step == 100


def test_the_evaluator_is_never_required() -> None:
    job = Job({**PS, "evaluator": 1})
    job.run()
    assert snapshot.task_rows(job.core, job.now)["evaluator:0"].state == "absent"
    assert job.report("evaluator:0").phase == "running"
    job.wait(LOST + 1, "evaluator:0")
    assert job.core.phase == "running"
    assert snapshot.task_rows(job.core, job.now)["evaluator:0"].state == "lost"


def test_a_thousand_tasks_form_in_well_under_a_second() -> None:
    job = Job({"worker": 1000})
    begun = time.process_time()
    job.arrive()
    assert job.core.phase == "running"
    assert time.process_time() - begun < 0.8


# Losses. ------------------------------------------------------------------------------------------


def test_a_silent_ps_worker_is_reported_once_until_it_reports_again() -> None:
    job = Job(PS)
    job.run()
    for _ in range(2):
        job.wait(5 * LOST, "worker:1")
        job.wait(1)
    assert job.logged.count("worker:1 lost (silent for 10 s); the others continue") == 2


def test_silent_workers_are_listed_until_they_report_again() -> None:
    job = Job(PS)
    job.run()
    assert job.core.tasks.silent() == []
    job.wait(LOST + 1, "worker:1")
    assert job.core.tasks.silent() == ["worker:1"]
    job.report("worker:1")
    assert job.core.tasks.silent() == []


def test_the_loss_of_an_earlier_generation_is_ignored() -> None:
    job = Job()
    job.run()
    lose_child(job, "worker:1")
    job.stop_children()
    assert job.core.generation == 2
    assert job.report("worker:1", ended_early=1).phase == "running"


def test_a_chief_that_was_stopped_lets_the_others_wait_for_the_next() -> None:
    job = Job()
    job.run()
    job.core.generation_over(job.now)
    assert job.report("worker:1").phase == "forming"
    job.stop_children()
    job.core.end(Exit.OK, "")
    job.core.generation_over(job.now)
    assert job.core.phase == "done"


# The end. -----------------------------------------------------------------------------------------


def test_the_first_verdict_stands() -> None:
    job = Job()
    job.run()
    job.report("worker:1", loss=failed(13, "the loss is nan"))
    version = job.core.version
    job.report("worker:2", loss=failed(2, "another"))
    lose_child(job, "worker:0")
    job.core.end(Exit.OK, "")
    job.wait(REJOIN + PROGRESS)
    assert job.outcome == ("failed", Exit.DIVERGED)
    assert (job.core.message, job.core.version) == ("worker:1: the loss is nan; there is no checkpoint yet", version)


# What it shows. -----------------------------------------------------------------------------------


def test_the_version_goes_up_with_each_change_and_only_then() -> None:
    job = Job()
    versions = [job.core.version]
    job.run()
    versions.append(job.core.version)
    job.wait(5)
    assert job.core.version == versions[-1]
    lose_child(job, "worker:1")
    versions.append(job.core.version)
    job.stop_children()
    versions.append(job.core.version)
    job.core.end(Exit.OK, "")
    versions.append(job.core.version)
    assert versions == sorted(set(versions))
    assert job.report("worker:0").version == versions[-1]


def test_start_lines_are_kept_after_their_task_has_gone() -> None:
    job = Job()
    job.run()
    job.report("worker:1", status=ChildStatus(line="task=worker:1 ..."))
    job.report("worker:1", status=ChildStatus())
    assert job.core.tasks.start_lines == {"worker:1": "task=worker:1 ..."}


def test_a_ps_worker_that_runs_again_is_noted_with_the_time_that_it_was_away() -> None:
    job = Job(PS)
    job.run()
    job.wait(2)
    job.report("worker:1", generation=0, loss=KILLED)
    job.wait(3)
    job.report("worker:1", generation=1, restarts=1, loss=None, restarted_for=KILLED)
    job.wait(2)
    assert job.facts[1:] == [Lost("worker:1", KILLED, "others_continue"), Back("worker:1", 3.0)]
    assert job.logged[1:] == ["worker:1 lost (killed by SIGKILL); the others continue"], "to come back is no news"


def test_a_ps_worker_whose_supervisor_was_silent_is_back_once_it_reports() -> None:
    job = Job(PS)
    job.run()
    job.wait(LOST + 5, "worker:1")
    job.report("worker:1")
    job.report("worker:1")
    silent = Loss(Cause.SILENT, seconds=LOST)
    assert job.facts[1:] == [Lost("worker:1", silent, "others_continue"), Back("worker:1", 4.0)]


def test_a_task_that_a_new_generation_has_replaced_does_not_come_back() -> None:
    job = Job(PS)
    job.run()
    job.report("worker:1", generation=0, loss=KILLED)
    lose_child(job, "ps:0")
    job.stop_children()
    job.run()
    assert job.facts[1:] == [Lost("ps:0", KILLED, "re_forming"), Formed(2, 4)]


def test_each_checkpoint_is_scored_once() -> None:
    job = Job({**PS, "evaluator": 1})
    job.run()
    job.report("evaluator:0", generation=1, status=ChildStatus(step=100))
    scored = ChildStatus(step=100, figures={"accuracy": 0.5, "loss": 1.5, "note": "text", "examples_per_second": 9.0})
    for status in (scored, scored, replace(scored, step=200)):
        job.report("evaluator:0", status=status)
        job.wait(2)
    figures = {"loss": 1.5, "accuracy": 0.5}
    assert job.facts[1:] == [Scored("evaluator:0", step, figures) for step in (100, 200)]
    assert str(job.facts[-1]) == "step 200: loss=1.5 accuracy=0.5"
    assert [entry.generation for entry in job.core.chronicle.since(1)] == [1, 1]


def test_the_end_is_noted_once_with_the_task_and_the_loss_that_it_ends_for() -> None:
    job = Job()
    job.run()
    step(job, 40)
    nan = failed(Exit.DIVERGED, "the loss is nan")
    job.report("worker:1", loss=nan)
    job.report("worker:2", loss=failed(Exit.USER, "another"))
    job.core.end(Exit.OK, "")
    message = "worker:1: the loss is nan; there is no checkpoint yet"
    assert job.facts[1:] == [Ended(int(Exit.DIVERGED), message, "worker:1", nan)]
    assert job.core.chronicle.since(1)[0].step == 40


def test_only_the_newest_events_are_kept() -> None:
    job = Job()
    for number in range(EVENTS_KEPT + 3):
        job.core.note(Note(str(number)))
    assert job.logged == [str(number) for number in range(3, EVENTS_KEPT + 3)]
