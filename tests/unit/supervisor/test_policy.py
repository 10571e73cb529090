"""What each failure means for the job, without a rendezvous around it."""

from dataclasses import replace
from typing import Any

import pytest

from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.protocol.reports import Report
from trainer.supervisor.policy import Decision, FailurePolicy
from trainer.supervisor.progress import Progress, ProgressWatch

PS = {"worker": 2, "ps": 1, "evaluator": 1}


def policy(tasks: dict[str, int], max_restarts: int = 1) -> FailurePolicy:
    strategy = "parameter_server" if "ps" in tasks else "multi_worker_mirrored"
    spec = build({"name": "j", "strategy": strategy, "tasks": tasks, "max_restarts": max_restarts})
    return FailurePolicy(spec, ["evaluator:0"])


def report(name: str, **changes: Any) -> Report:
    return replace(Report(name, "first", "cluster", "spec", "workload", {}), **changes)


@pytest.mark.parametrize(
    ("tasks", "name", "decision"),
    [
        ({"worker": 2}, "worker:1", Decision("worker:1 lost (why), re-forming", re_form=True)),
        (PS, "ps:0", Decision("ps:0 lost (why), re-forming", re_form=True)),
        (PS, "worker:1", Decision("worker:1 lost (why); the others go on")),
        (PS, "evaluator:0", Decision("evaluator:0 lost (why); nobody waits for it")),
    ],
)
def test_a_loss_re_forms_or_leaves_the_others_alone(tasks: dict[str, int], name: str, decision: Decision) -> None:
    assert policy(tasks).lost(name, "why") == decision


def test_a_ps_worker_ends_the_job_only_after_lives_without_a_step() -> None:
    failures = policy(PS)
    assert failures.lost("worker:0", "why", ended=False).end is None, "silence is no end of a life"
    assert failures.lost("worker:0", "why").end is None
    failures.stepped(["worker:0"])
    assert [failures.lost("worker:0", "why").end is None for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("changes", "ends"),
    [({"failure": (13, "nan")}, True), ({}, False), ({"failure": (2, "x"), "blames_peer": True}, False)],
)
def test_a_failure_of_a_tasks_own_ends_the_job(changes: dict[str, Any], ends: bool) -> None:
    failures = policy(PS)
    assert failures.failed(report("evaluator:0", **changes)) is None
    assert failures.failed(report("worker:0", **changes)) == (
        Decision(end=(Exit.DIVERGED, "worker:0: nan")) if ends else None
    )


@pytest.mark.parametrize("lost", [False, True])
def test_an_error_that_a_lost_peer_causes_repeats_only_where_one_was_lost(lost: bool) -> None:
    failures, progress = policy({"worker": 2}, 9), Progress(generations_without_progress=1)
    for generation in (1, 2):
        failures.task_lost = lost
        blames = report("worker:0", lost=generation, blames_peer=True, failure=(2, "x"))
        decision = failures.before_forming([blames], generation, progress)
        assert decision == (
            Decision(end=(Exit.USER, "worker:0: x (twice, and no other task was lost)"))
            if generation == 2 and not lost
            else None
        )


def test_only_a_step_beyond_the_best_one_is_progress() -> None:
    watch = ProgressWatch(Progress(step=50, generations_without_progress=2), since=0.0)
    watch.update({"step": 50}, 0, 1.0)
    assert (watch.since, watch.progress.generations_without_progress) == (1.0, 2)
    watch.update({"step": 60}, 70, 2.0)
    assert watch.progress.generations_without_progress == 2, "only what a checkpoint held already"
    watch.update({"step": 71}, 70, 3.0)
    assert (watch.progress.step, watch.progress.generations_without_progress) == (71, 0)


def test_a_worker_without_a_new_step_did_not_step() -> None:
    watch = ProgressWatch(Progress(), since=0.0)
    rows = {"worker:0": {"step": 1}, "worker:1": {}}
    assert watch.update({"workers": rows}, 0, 1.0) == ["worker:0"]
    assert watch.update({"workers": rows}, 0, 2.0) == []
