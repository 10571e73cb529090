"""What each failure means for the job: the policy alone, then in a rendezvous."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.supervisor.jobs import LOSSES, LOST, PS, Job, fail_once_more, fall_silent, lose_child, step
from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.job.messages import counted
from trainer.protocol.reports import Reply, Report
from trainer.supervisor.rendezvous.policy import CAUSES, Decision, FailurePolicy
from trainer.supervisor.rendezvous.progress import Progress

WITH_EVALUATOR = {**PS, "evaluator": 1}


def policy(tasks: dict[str, int], max_restarts: int = 1) -> FailurePolicy:
    strategy = "parameter_server" if "ps" in tasks else "multi_worker_mirrored"
    spec = build({"name": "j", "strategy": strategy, "tasks": tasks, "max_restarts": max_restarts})
    return FailurePolicy(spec, ["evaluator:0"], "chief:0")


def report(name: str, **changes: Any) -> Report:
    return replace(Report(name, "first", "cluster", "spec", "workload", {}), **changes)


@pytest.mark.parametrize(
    ("tasks", "name", "decision"),
    [
        ({"worker": 2}, "worker:1", Decision("worker:1 lost (why), re-forming", re_form=True, cause="child_ended")),
        (WITH_EVALUATOR, "ps:0", Decision("ps:0 lost (why), re-forming", re_form=True, cause="child_ended")),
        (WITH_EVALUATOR, "worker:1", Decision("worker:1 lost (why); the others continue", cause="child_ended")),
        (
            WITH_EVALUATOR,
            "evaluator:0",
            Decision("evaluator:0 lost (why); the job does not wait for it", cause="child_ended"),
        ),
    ],
)
def test_a_loss_re_forms_or_leaves_the_others_alone(tasks: dict[str, int], name: str, decision: Decision) -> None:
    assert policy(tasks).lost(name, "why") == replace(decision, task=name)


def test_a_ps_worker_ends_the_job_only_after_lives_without_a_step() -> None:
    failures = policy(WITH_EVALUATOR)
    assert failures.lost("worker:0", "why", ended=False).end is None, "silence is no end of a life"
    assert failures.lost("worker:0", "why").end is None
    failures.stepped(["worker:0"])
    assert [failures.lost("worker:0", "why").end is None for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("changes", "ends"),
    [({"failure": (13, "nan")}, True), ({}, False), ({"failure": (2, "x"), "blames_peer": True}, False)],
)
def test_a_failure_of_a_tasks_own_ends_the_job(changes: dict[str, Any], ends: bool) -> None:
    failures = policy(WITH_EVALUATOR)
    assert failures.failed(report("evaluator:0", **changes)) is None
    assert failures.failed(report("worker:0", **changes)) == (
        Decision(end=(Exit.DIVERGED, "worker:0: nan")) if ends else None
    )


@pytest.mark.parametrize("lost", [False, True])
def test_an_error_that_a_lost_peer_causes_repeats_only_where_one_was_lost(lost: bool) -> None:
    failures, progress = policy({"worker": 2}, 9), Progress(generations_without_progress=1)
    for generation in (1, 2):
        failures.task_lost = lost
        blames = report("worker:0", ended_early=generation, blames_peer=True, failure=(2, "x"))
        decision = failures.before_forming([blames], generation, progress)
        assert decision == (
            Decision(end=(Exit.USER, "worker:0: x (twice, and no other task was lost)"))
            if generation == 2 and not lost
            else None
        )


# In a rendezvous. ---------------------------------------------------------------------------------


WHO_RE_FORMS = [
    *((None, name, True) for name in ("worker:0", "worker:1", "worker:2")),
    *((PS, name, True) for name in ("chief:0", "ps:0")),
    *((PS, name, False) for name in ("worker:0", "worker:1")),
]


@pytest.mark.parametrize(("lose", "reason"), LOSSES)
@pytest.mark.parametrize(("tasks", "name", "re_forms"), WHO_RE_FORMS)
def test_which_losses_start_a_new_generation(
    lose: Any, reason: str, tasks: dict[str, int] | None, name: str, re_forms: bool
) -> None:
    job = Job(tasks)
    job.run()
    job.checkpoint = 500
    lose(job, name)
    if not re_forms:
        assert (job.core.phase, job.core.generation) == ("running", 1)
        assert job.logged[-1] == f"{name} lost ({reason}); the others continue"
        return
    assert job.report(job.chief).phase == "forming"
    assert job.logged[-1] == f"{name} lost ({reason}), re-forming"
    job.stop_children()
    job.reach(name)
    assert job.report(job.chief) == Reply("running", 2, 500, version=4)


@pytest.mark.parametrize("allowed", [0, 1, 3])
@pytest.mark.parametrize("steps", [0, 20])
def test_it_gives_up_after_max_restarts_generations_without_a_step(allowed: int, steps: int) -> None:
    job = Job(max_restarts=allowed)
    job.run()
    if steps:  # then this generation is not one of them
        step(job, steps)
        job.checkpoint = steps
        fail_once_more(job)
    for _ in range(allowed):
        fail_once_more(job)
        assert job.core.phase == "running"
    fail_once_more(job)
    assert job.outcome == ("failed", Exit.GAVE_UP)
    last = "worker:1 lost (killed by SIGKILL)"
    assert job.core.message == f"{counted(allowed + 1, 'generation')} without a new step (max_restarts); last: {last}"


def test_a_generation_that_stopped_as_it_was_asked_to_is_no_crash() -> None:
    job = Job(PS, max_restarts=0)
    job.run()
    step(job, 100)
    lose_child(job, "ps:0")
    job.stop_children()
    for _ in range(3):
        job.run()
        step(job, 50)
        job.core.generation_over(job.now)
        job.stop_children()
    assert job.outcome == ("running", Exit.OK)


def test_a_ps_worker_lost_repeatedly_without_a_step_ends_the_job() -> None:
    job = Job(PS, max_restarts=2)
    job.run()
    for restarts in (1, 2):
        job.report("worker:1", restarts=restarts, reason="killed by SIGSEGV")
        step(job, 10 * restarts, workers={"worker:0": {"step": 10 * restarts}})
    job.restart("worker:0")
    assert job.outcome == ("running", Exit.OK)
    job.restart("worker:1")
    assert job.outcome == ("failed", Exit.GAVE_UP)
    assert job.core.message == (
        "worker:1 was lost 3 times in a row without a step (max_restarts); last: its supervisor was restarted"
    )


def test_a_ps_worker_that_makes_steps_may_be_lost_forever() -> None:
    job = Job(PS, max_restarts=0)
    job.run()
    for restarts in range(1, 20):
        step(job, restarts, workers={"worker:1": {"step": restarts}})
        job.report("worker:1", restarts=restarts, reason="killed by SIGKILL")
    assert job.outcome == ("running", Exit.OK)


def test_a_ps_worker_that_is_stopped_for_a_while_is_one_loss() -> None:
    job = Job(PS, max_restarts=1)
    job.run()
    for times in (1, 2, 3):
        job.wait(LOST + 1, "worker:1")
        assert job.core.code is (Exit.OK if times < 3 else Exit.GAVE_UP)
        job.report("worker:1")  # its supervisor goes on, and replaces the child that got no tickets meanwhile
        job.report("worker:1", restarts=times, reason="no contact with the chief for 11 s")
        assert job.core.code is (Exit.OK if times < 2 else Exit.GAVE_UP)
        step(job, 10 * times, workers={"worker:0": {"step": 10 * times}})


def blame(job: Job, name: str) -> None:
    """Its child ends with an error that a lost peer causes, or a defect of its own."""
    job.report(
        name, generation=0, ended_early=job.core.generation, reason="InternalError: x", blames_peer=True,
        failure=(2, "gen.py:8: InternalError: x"),
    )  # fmt: skip


def clear(job: Job) -> None:
    job.stop_children()
    for name in job.core.tasks.required:
        job.report(name, generation=job.core.generation, ended_early=0, reason="", blames_peer=False, failure=None)


def test_an_error_that_blames_a_peer_though_none_is_lost_is_the_tasks_own_when_it_comes_back() -> None:
    job = Job()
    job.run()
    blame(job, "worker:1")
    job.report(
        "worker:2", generation=0, ended_early=1, reason="UnavailableError: x", blames_peer=True
    )  # as a consequence
    clear(job)
    assert job.core.generation == 2
    blame(job, "worker:1")
    job.stop_children()
    assert job.outcome == ("failed", Exit.USER)
    assert job.core.message == "worker:1: gen.py:8: InternalError: x (twice, and no other task was lost)"


@pytest.mark.parametrize(("lose", "_"), LOSSES)
def test_an_error_that_blames_a_peer_is_believed_when_one_is_lost(lose: Any, _: str) -> None:
    job = Job()
    job.run()
    for _generation in range(3):
        if lose is fall_silent:
            lose(job, "worker:2")
            blame(job, "worker:1")
        else:
            blame(job, "worker:1")
            lose(job, "worker:2")
        job.reach("worker:2")
        clear(job)
    assert job.outcome == ("running", Exit.OK)


def test_an_error_that_blames_a_peer_after_new_steps_is_another_one() -> None:
    job = Job()
    job.run()
    for number in range(1, 5):
        step(job, number)
        blame(job, "worker:1")
        clear(job)
    assert job.outcome == ("running", Exit.OK)


@pytest.mark.parametrize("tasks", [None, PS])
def test_a_task_lost_after_the_chief_was_asked_to_stop_is_not_a_failure(tasks: dict[str, int] | None) -> None:
    job = Job(tasks)
    job.run()
    reported = list(job.logged)
    job.core.stopping = True
    for name in job.core.tasks.required[1:]:
        job.report(name, generation=0, leaving=True)
        lose_child(job, name)
    job.report(job.chief, generation=0, leaving=True)
    job.wait(2 * LOST, *job.core.tasks.required[1:])
    assert job.logged == reported
    assert job.core.chronicle.restarts.total() == 0
    assert job.outcome[1] == Exit.OK


def test_a_task_asked_to_stop_before_it_has_anything_to_save_is_not_lost() -> None:
    job = Job()
    job.run()
    job.report("worker:1", generation=0, leaving=True)
    assert job.core.phase == "forming"
    assert job.logged[-1] == "worker:1 was asked to stop, re-forming"


def test_a_task_that_stopped_as_all_agreed_leaves_the_chief_to_save() -> None:
    job = Job()
    job.run()
    step(job, 100)
    job.report("worker:1", generation=0, leaving=True, status={"stopped_well": True})
    assert job.outcome == ("running", Exit.OK)


@pytest.mark.parametrize("code", [Exit.USER, Exit.BUG, Exit.EVALUATION, Exit.OK])
def test_an_evaluator_failure_does_not_fail_the_job(code: Exit) -> None:
    job = Job({**PS, "evaluator": 1})
    job.run()
    assert job.report("evaluator:0", failure=(int(code), "pruned meanwhile")).phase == "running"
    assert job.outcome == ("running", Exit.OK)


@pytest.mark.parametrize("tasks", [{**PS, "evaluator": 1}, {"worker": 2, "evaluator": 1}])
def test_a_restarted_evaluator_does_not_affect_other_tasks(tasks: dict[str, int]) -> None:
    job = Job(tasks)
    job.run()
    job.report("evaluator:0", generation=1)
    assert job.restart("evaluator:0").phase == "running"
    assert job.core.generation == 1
    assert "evaluator:0 lost (its supervisor was restarted); the job does not wait for it" in job.logged


@pytest.mark.parametrize("tasks", [None, PS])
@pytest.mark.parametrize("code", [Exit.USER, Exit.DEVICES, Exit.DIVERGED, Exit.BUG])
def test_the_failure_of_a_task_ends_the_job_for_all(tasks: dict[str, int] | None, code: Exit) -> None:
    job = Job(tasks)
    job.run()
    job.report("worker:1", failure=(int(code), "what happened"))
    message = "worker:1: what happened" + ("; there is no checkpoint yet" if code is Exit.DIVERGED else "")
    for name in job.core.tasks.required:
        reply = job.report(name)
        assert (reply.phase, reply.code, reply.message) == ("failed", code, message)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("killed by SIGKILL", "killed"),
        ("out of memory at its limit of 5 MiB, killed by the kernel; raise tasks.ps.memory", "out_of_memory"),
        ("no sign of life for 20 s", "hang"),
        ("no report for 600 s (deadlines.progress)", "hang"),
        ("its supervisor was restarted", "supervisor_restarted"),
        ("silent for 10 s", "silent"),
        ("no contact with the chief for 12 s", "silent"),
        ("anything that a program wrote", "child_ended"),
    ],
)
def test_a_loss_has_a_cause_of_a_few(reason: str, cause: str) -> None:
    assert policy({"worker": 2}).lost("worker:1", reason).cause == cause
    assert cause in CAUSES
