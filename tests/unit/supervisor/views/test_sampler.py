"""Points of the curves, and the facts of a rendezvous with a fake clock as marks."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.unit.cli.fake import STATUS
from tests.unit.supervisor.jobs import KILLED, PS, Job, lose_child, step
from trainer.model_dir.history import MOST_METRICS, Mark, Path
from trainer.page.marks import marks
from trainer.protocol.child import ChildStatus
from trainer.protocol.facts import Note, Slow
from trainer.protocol.reports import Used
from trainer.protocol.status import Shares, TaskRow
from trainer.supervisor.rendezvous.chronicle import EVENTS_KEPT
from trainer.supervisor.views.sampler import job_point, tasks_point
from trainer.supervisor.views.snapshot import Snapshot, task_rows, used_of


def snapshot(tasks: dict[str, TaskRow], used: dict[str, Used] | None = None) -> Snapshot:
    return Snapshot(0.0, replace(STATUS, step=None, tasks=tasks), used or {}, 0.0)


def of_chief(figures: dict[str, object], tasks: dict[str, TaskRow] | None = None, step: int | None = None) -> Snapshot:
    """Of a job whose chief's child has these figures."""
    return Snapshot(0.0, replace(STATUS, step=step, figures=figures, tasks=tasks or {}), {}, 0.0)


def row(**figures: object) -> TaskRow:
    return TaskRow(state="running", figures=figures)


def test_a_point_of_a_task_has_its_rate_the_shares_of_its_time_and_what_it_uses() -> None:
    worker = replace(row(examples_per_second=2.5), step=7, shares=Shares(0.5, 0.25, None, None, 0.25))
    rows = {"worker:0": worker, "ps:0": row(), "worker:1": TaskRow(state="absent")}
    assert tasks_point(snapshot(rows, {"ps:0": Used(cpu=0.5, memory=1000)})) == {
        ("worker:0", "step"): 7.0,
        ("worker:0", "examples_per_second"): 2.5,
        ("worker:0", "input"): 0.5,
        ("worker:0", "compute"): 0.25,
        ("worker:0", "wait"): None,
        ("worker:0", "network"): None,
        ("worker:0", "between"): 0.25,
        ("ps:0", "step"): None,
        ("ps:0", "examples_per_second"): None,
        ("ps:0", "cpu"): 0.5,
        ("ps:0", "memory"): 1000,
        ("ps:0", "gpu"): None,
        ("ps:0", "gpu_memory"): None,
        ("ps:0", "received"): None,
        ("ps:0", "sent"): None,
    }


def test_a_point_of_the_job_has_its_figures() -> None:
    figures = {"loss": 0.5, "examples_per_second": 150.0, "accuracy": 0.25, "note": "x"}
    assert job_point(of_chief(figures, {}, 7)) == {
        ("step",): 7, ("loss",): 0.5, ("examples_per_second",): 150.0, ("metrics", "accuracy"): 0.25,
    }  # fmt: skip


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400, "0.5", True, None, [1]])
def test_what_is_no_number_is_not_known(value: object) -> None:
    point = job_point(of_chief({"loss": value, "mine": value}))
    assert point == {("step",): None, ("loss",): None, ("examples_per_second",): None}


def test_of_very_many_metrics_some_are_kept() -> None:
    point = job_point(of_chief({f"m{n}": 0.5 for n in range(1000)}))
    assert sum(path[0] == "metrics" for path in point) == MOST_METRICS


def new_marks(job: Job, noted: int = 0) -> list[Mark]:
    return [*marks(job.core.chronicle.since(noted))]


def kinds(job: Job) -> list[tuple[str, str | None]]:
    return [(mark.kind, mark.task) for mark in new_marks(job)]


def test_a_worker_that_dies_alone_is_marked_and_again_when_it_runs() -> None:
    job = Job(PS)
    job.run()
    assert kinds(job) == [("formed", None)]
    job.report("worker:1", generation=0, restarts=1, restarted_for=KILLED)
    assert kinds(job)[1:] == [("lost", "worker:1")]
    job.now += 2.5
    job.report("worker:1", generation=1)
    job.report("worker:1")
    assert kinds(job)[2:] == [("restarted", "worker:1")]
    assert (new_marks(job)[-1].text, new_marks(job)[-1].seconds) == ("worker:1 runs again after 2.5 s", 2.5)


def test_a_loss_of_all_is_marked_and_the_next_generation_with_its_number() -> None:
    job = Job({"worker": 3})
    job.run()
    lose_child(job, "worker:2")
    job.stop_children()
    job.run()
    found = new_marks(job)
    assert [(mark.kind, mark.task) for mark in found] == [("formed", None), ("lost", "worker:2"), ("formed", None)]
    assert found[1].text == "worker:2 lost (killed by SIGKILL), re-forming"
    assert found[2].generation == 2


def test_facts_that_came_faster_than_snapshots_are_all_marked_and_none_twice() -> None:
    job = Job({"worker": 1})
    for number in range(2 * EVENTS_KEPT):
        job.core.note(Note(str(number)))
    assert [mark.text for mark in new_marks(job)] == [str(number) for number in range(2 * EVENTS_KEPT)]
    noted = job.core.chronicle.noted
    job.core.note(Slow("worker:0", "one more"))
    (mark,) = new_marks(job, noted)
    assert (mark.kind, mark.task, mark.text) == ("slow", "worker:0", "one more")


def test_a_score_of_the_evaluator_is_a_mark_and_stays_in_the_points() -> None:
    job = Job({"worker": 1, "evaluator": 1})
    scored = ChildStatus(step=40, figures={"loss": 0.5, "accuracy": 0.875})
    job.report("evaluator:0", status=scored)
    job.report("evaluator:0")
    (mark,) = new_marks(job)
    assert (mark.kind, mark.task, mark.step, mark.text) == (
        "score",
        "evaluator:0",
        40,
        "step 40: loss=0.5 accuracy=0.875",
    )
    point = job_point(snapshot(task_rows(job.core, job.now)))
    scores: list[Path] = [("scores", "loss"), ("scores", "accuracy")]
    assert [point[path] for path in scores] == [0.5, 0.875]


def test_the_rows_of_ps_workers_have_the_coordinators_measurements() -> None:
    job = Job(PS)
    job.run()
    step(job, 7, figures={"accuracy": 0.5})
    job.report("worker:1", used=Used(cpu=1.5))
    found = task_rows(job.core, job.now, {"worker:1": ChildStatus(step=3), "worker:9": ChildStatus(step=4)})
    assert (found["worker:1"].step, found["chief:0"].step) == (3, 7)
    assert "worker:9" not in found
    assert used_of(job.core) == {"worker:1": Used(cpu=1.5)}
