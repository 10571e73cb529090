"""Points and marks of the history, of a rendezvous with a fake clock."""

from __future__ import annotations

import math

import pytest

from tests.unit.supervisor.jobs import PS, Job, lose_child, step
from trainer.model_dir.history import MOST_METRICS
from trainer.protocol.events import Figures
from trainer.protocol.reports import Used
from trainer.protocol.status import Shares
from trainer.supervisor.children.child_status import ChildStatus
from trainer.supervisor.views.sampler import Sampler, rows_of, tasks_point, used_of


def test_a_point_of_a_task_has_its_rate_the_shares_of_its_time_and_what_it_uses() -> None:
    rows: dict[str, Figures] = {"worker:0": {"step": 7, "examples_per_second": 2.5}, "ps:0": {"step": "x"}}
    used = {"ps:0": Used(cpu=0.5, memory=1000)}
    found = tasks_point(rows, {"worker:0": Shares(0.5, 0.25, None, None, 0.25)}, used)
    assert found == {
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


def test_the_rate_of_a_job_is_the_sum_of_its_workers_rates() -> None:
    job = Job({"worker": 2})
    rows = {"worker:0": {"examples_per_second": 100.0}, "worker:1": {"examples_per_second": 50.0}}
    figures = {"step": 7, "loss": 0.5, "examples_per_second": 100.0, "accuracy": 0.25, "input_share": 0.1, "line": "x"}
    assert Sampler(job.spec).job_point(job.core, figures, rows) == {
        ("step",): 7, ("loss",): 0.5, ("examples_per_second",): 150.0, ("metrics", "accuracy"): 0.25,
    }  # fmt: skip


def test_the_rate_of_a_coordinator_is_that_of_the_job() -> None:
    job = Job(PS)
    rows = {"chief:0": {"examples_per_second": 90.0}, "worker:0": {"examples_per_second": 50.0}}
    point = Sampler(job.spec).job_point(job.core, {"examples_per_second": 90.0}, rows)
    assert point["examples_per_second",] == 90.0


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400, "0.5", True, None, [1]])
def test_what_is_no_number_is_not_known(value: object) -> None:
    job = Job({"worker": 1})
    point = Sampler(job.spec).job_point(job.core, {"loss": value, "mine": value}, {})
    assert point == {("step",): None, ("loss",): None, ("examples_per_second",): None}


def test_of_very_many_metrics_some_are_kept() -> None:
    job = Job({"worker": 1})
    point = Sampler(job.spec).job_point(job.core, {f"m{n}": 0.5 for n in range(1000)}, {})
    assert sum(path[0] == "metrics" for path in point) == MOST_METRICS


def kinds(sampler: Sampler, job: Job) -> list[tuple[str, str | None]]:
    return [(mark.kind, mark.task) for mark in sampler.marks(job.now, job.core, rows_of(job.core, {}))]


def test_a_worker_that_dies_alone_is_marked_and_again_when_it_runs() -> None:
    job = Job(PS)
    sampler = Sampler(job.spec)
    job.run()
    assert kinds(sampler, job) == [("formed", None)]
    job.report("worker:1", generation=0, restarts=1, reason="killed by SIGKILL")
    assert kinds(sampler, job) == [("lost", "worker:1")]
    assert kinds(sampler, job) == []
    job.report("worker:1", generation=1)
    assert kinds(sampler, job) == [("restarted", "worker:1")]
    assert kinds(sampler, job) == []


def test_a_loss_of_all_is_marked_and_the_next_generation_with_its_number() -> None:
    job = Job({"worker": 3})
    sampler = Sampler(job.spec)
    job.run()
    lose_child(job, "worker:2")
    job.stop_children()
    job.run()
    found = sampler.marks(job.now, job.core, {})
    assert [(mark.kind, mark.task) for mark in found] == [("formed", None), ("lost", "worker:2"), ("formed", None)]
    assert found[1].text == "worker:2 lost (killed by SIGKILL), re-forming"
    assert found[2].generation == 2


def test_events_that_came_faster_than_samples_are_not_marked_twice() -> None:
    job = Job({"worker": 1})
    sampler = Sampler(job.spec)
    for number in range(120):
        job.core.note(str(number))
    assert len(sampler.marks(0.0, job.core, {})) == 50  # that are kept
    job.core.note("one more", "slow", "worker:0")
    (mark,) = sampler.marks(0.0, job.core, {})
    assert (mark.kind, mark.task, mark.text) == ("slow", "worker:0", "one more")


def test_a_score_of_the_evaluator_is_a_mark_and_stays_in_the_points() -> None:
    job = Job({"worker": 1, "evaluator": 1})
    sampler, scored = Sampler(job.spec), {"evaluator:0": {"step": 40, "loss": 0.5, "accuracy": 0.875}}
    (mark,) = sampler.marks(1.0, job.core, scored)
    assert (mark.kind, mark.task, mark.step, mark.text) == (
        "score",
        "evaluator:0",
        40,
        "step 40: loss=0.5 accuracy=0.875",
    )
    assert sampler.marks(2.0, job.core, scored) == []
    point = sampler.job_point(job.core, {"step": 50}, scored)
    assert (point["scores", "loss"], point["scores", "accuracy"]) == (0.5, 0.875)


def test_a_checkpoint_is_found_once_with_the_pause_for_it() -> None:
    sampler, status = Sampler(Job({"worker": 1}).spec), ChildStatus()
    assert sampler.new_checkpoint(status) is None
    status.last_checkpoint, status.seconds_saving = 10, 0.25
    assert sampler.new_checkpoint(status) == (10, 0.25)
    assert sampler.new_checkpoint(status) is None
    status.last_checkpoint, status.seconds_saving = 20, 0.75
    assert sampler.new_checkpoint(status) == (20, 0.5)
    new_child = ChildStatus(last_checkpoint=30, seconds_saving=0.125)
    assert sampler.new_checkpoint(new_child) == (30, 0.0)


def test_the_rows_of_ps_workers_have_the_coordinators_measurements() -> None:
    job = Job(PS)
    job.run()
    step(job, 7, accuracy=0.5)
    job.report("worker:1", used=Used(cpu=1.5))
    found = rows_of(job.core, {"worker:1": {"step": 3}, "worker:9": {"step": 4}})
    assert (found["worker:1"], found["chief:0"]["step"]) == ({"step": 3}, 7)
    assert used_of(job.core) == {"worker:1": Used(cpu=1.5)}
