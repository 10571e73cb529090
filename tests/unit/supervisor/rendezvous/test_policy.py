"""What each failure means for the job: the policy alone, then in a rendezvous."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.supervisor.jobs import (
    KILLED,
    LOSSES,
    LOST,
    PS,
    Job,
    fail_once_more,
    failed,
    fall_silent,
    lose_child,
    step,
)
from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.job.messages import counted
from trainer.protocol import facts
from trainer.protocol.child import ChildStatus
from trainer.protocol.facts import Cause, Consequence, Ended, Loss, Lost
from trainer.protocol.reports import Reply, Report
from trainer.supervisor.rendezvous.policy import Decision, End, FailurePolicy
from trainer.supervisor.rendezvous.progress import Progress

WITH_EVALUATOR = {**PS, "evaluator": 1}
SEGV = Loss(Cause.KILLED, signal="SIGSEGV")


def policy(tasks: dict[str, int], max_restarts: int = 1) -> FailurePolicy:
    strategy = "parameter_server" if "ps" in tasks else "multi_worker_mirrored"
    spec = build({"name": "j", "strategy": strategy, "tasks": tasks, "max_restarts": max_restarts})
    return FailurePolicy(spec, ["evaluator:0"], "chief:0")


def report(name: str, **changes: Any) -> Report:
    return replace(Report(name, "first", "cluster", "spec", "workload", {}), **changes)


@pytest.mark.parametrize(
    ("tasks", "name", "then", "text"),
    [
        ({"worker": 2}, "worker:1", "re_forming", "worker:1 lost (killed by SIGKILL), re-forming"),
        (WITH_EVALUATOR, "ps:0", "re_forming", "ps:0 lost (killed by SIGKILL), re-forming"),
        (WITH_EVALUATOR, "worker:1", "others_continue", "worker:1 lost (killed by SIGKILL); the others continue"),
        (
            WITH_EVALUATOR,
            "evaluator:0",
            "not_awaited",
            "evaluator:0 lost (killed by SIGKILL); the job does not wait for it",
        ),
    ],
)
def test_a_loss_re_forms_or_leaves_the_others_alone(
    tasks: dict[str, int], name: str, then: Consequence, text: str
) -> None:
    failures = policy(tasks)
    fact = Lost(name, KILLED, then)
    assert failures.lost(name, KILLED) == Decision(fact, re_form=then == "re_forming", restarts=True)
    assert (failures.last, str(fact)) == (fact, text)


def test_a_ps_worker_ends_the_job_only_after_lives_without_a_step() -> None:
    failures = policy(WITH_EVALUATOR)
    assert failures.lost("worker:0", KILLED, ended=False).end is None, "silence is no end of a life"
    assert failures.lost("worker:0", KILLED).end is None
    failures.stepped(["worker:0"])
    assert [failures.lost("worker:0", KILLED).end is None for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    ("loss", "ends"),
    [(failed(13, "nan"), True), (None, False), (KILLED, False), (failed(2, "x", blames_peer=True), False)],
)
def test_a_failure_of_a_tasks_own_ends_the_job(loss: Loss | None, ends: bool) -> None:
    failures = policy(WITH_EVALUATOR)
    assert failures.failed(report("evaluator:0", loss=loss)) is None
    assert failures.failed(report("worker:0", loss=loss)) == (
        Decision(end=End(Exit.DIVERGED, "worker:0: nan", "worker:0", loss)) if ends else None
    )


@pytest.mark.parametrize("lost", [False, True])
def test_an_error_that_a_lost_peer_causes_repeats_only_where_one_was_lost(lost: bool) -> None:
    failures, progress = policy({"worker": 2}, 9), Progress(generations_without_progress=1)
    for generation in (1, 2):
        failures.task_lost = lost
        loss = failed(2, "x", blames_peer=True)
        blames = report("worker:0", ended_early=generation, loss=loss)
        decision = failures.before_forming([blames], generation, progress)
        if generation == 1 or lost:
            assert decision is None
            continue
        again = "x (twice, and no other task was lost)"
        assert decision == Decision(end=End(Exit.USER, f"worker:0: {again}", "worker:0", replace(loss, error=again)))


# In a rendezvous. ---------------------------------------------------------------------------------


WHO_RE_FORMS = [
    *((None, name, True) for name in ("worker:0", "worker:1", "worker:2")),
    *((PS, name, True) for name in ("chief:0", "ps:0")),
    *((PS, name, False) for name in ("worker:0", "worker:1")),
]


@pytest.mark.parametrize(("lose", "loss", "reason"), LOSSES)
@pytest.mark.parametrize(("tasks", "name", "re_forms"), WHO_RE_FORMS)
def test_which_losses_start_a_new_generation(
    lose: Any, loss: Loss, reason: str, tasks: dict[str, int] | None, name: str, re_forms: bool
) -> None:
    job = Job(tasks)
    job.run()
    job.checkpoint = 500
    lose(job, name)
    if not re_forms:
        assert (job.core.phase, job.core.generation) == ("running", 1)
        assert job.logged[-1] == f"{name} lost ({reason}); the others continue"
        assert job.facts[-1] == Lost(name, loss, "others_continue")
        return
    assert job.report(job.chief).phase == "forming"
    assert job.logged[-1] == f"{name} lost ({reason}), re-forming"
    assert job.facts[-1] == Lost(name, loss, "re_forming")
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
    assert job.facts[-1] == Ended(int(Exit.GAVE_UP), job.core.message, "worker:1", KILLED)
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
        job.report("worker:1", restarts=restarts, restarted_for=SEGV)
        step(job, 10 * restarts, workers={"worker:0": 10 * restarts})
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
        step(job, restarts, workers={"worker:1": restarts})
        job.report("worker:1", restarts=restarts, restarted_for=KILLED)
    assert job.outcome == ("running", Exit.OK)


def test_a_ps_worker_that_is_stopped_for_a_while_is_one_loss() -> None:
    job = Job(PS, max_restarts=1)
    job.run()
    for times in (1, 2, 3):
        job.wait(LOST + 1, "worker:1")
        assert job.core.code is (Exit.OK if times < 3 else Exit.GAVE_UP)
        job.report("worker:1")  # its supervisor goes on, and replaces the child that got no tickets meanwhile
        job.report("worker:1", restarts=times, restarted_for=Loss(Cause.NO_CONTACT, seconds=11))
        assert job.core.code is (Exit.OK if times < 2 else Exit.GAVE_UP)
        step(job, 10 * times, workers={"worker:0": 10 * times})


def blame(job: Job, name: str) -> None:
    """Its child ends with an error that a lost peer causes, or a defect of its own."""
    loss = Loss(Cause.PEER_LOST, "InternalError: x", "gen.py:8: InternalError: x", code=2, blames_peer=True)
    job.report(name, generation=0, ended_early=job.core.generation, loss=loss)


def clear(job: Job) -> None:
    job.stop_children()
    for name in job.core.tasks.required:
        job.report(name, generation=job.core.generation, ended_early=0, loss=None)


def test_an_error_that_blames_a_peer_though_none_is_lost_is_the_tasks_own_when_it_comes_back() -> None:
    job = Job()
    job.run()
    blame(job, "worker:1")
    consequence = Loss(Cause.PEER_LOST, "UnavailableError: x", blames_peer=True)
    job.report("worker:2", generation=0, ended_early=1, loss=consequence)
    clear(job)
    assert job.core.generation == 2
    blame(job, "worker:1")
    job.stop_children()
    assert job.outcome == ("failed", Exit.USER)
    assert job.core.message == "worker:1: gen.py:8: InternalError: x (twice, and no other task was lost)"


@pytest.mark.parametrize("lose", [lose for lose, *_ in LOSSES])
def test_an_error_that_blames_a_peer_is_believed_when_one_is_lost(lose: Any) -> None:
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
    assert job.facts[-1] == Lost("worker:1", Loss(Cause.ASKED_TO_STOP), "re_forming")


def test_a_task_that_stopped_as_all_agreed_leaves_the_chief_to_save() -> None:
    job = Job()
    job.run()
    step(job, 100)
    job.report("worker:1", generation=0, leaving=True, status=ChildStatus(stopped_well=True))
    assert job.outcome == ("running", Exit.OK)


@pytest.mark.parametrize("code", [Exit.USER, Exit.BUG, Exit.EVALUATION, Exit.OK])
def test_an_evaluator_failure_does_not_fail_the_job(code: Exit) -> None:
    job = Job({**PS, "evaluator": 1})
    job.run()
    assert job.report("evaluator:0", loss=failed(code, "pruned meanwhile")).phase == "running"
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
    job.report("worker:1", loss=failed(code, "what happened"))
    message = "worker:1: what happened" + ("; there is no checkpoint yet" if code is Exit.DIVERGED else "")
    for name in job.core.tasks.required:
        reply = job.report(name)
        assert (reply.phase, reply.code, reply.message) == ("failed", code, message)


@pytest.mark.parametrize(
    ("loss", "label"),
    [
        (KILLED, "killed"),
        (Loss(Cause.OUT_OF_MEMORY, signal="SIGKILL", memory=5 << 20, setting="tasks.ps.memory"), "out_of_memory"),
        (Loss(Cause.HANG, seconds=20), "hang"),
        (Loss(Cause.HANG, seconds=600, setting="deadlines.progress"), "hang"),
        (Loss(Cause.SUPERVISOR_RESTARTED), "supervisor_restarted"),
        (Loss(Cause.SILENT, seconds=10), "silent"),
        (Loss(Cause.NO_CONTACT, seconds=12), "silent"),
        (Loss(Cause.PROGRAM_ENDED, "killed by SIGKILL, says the program", status=1), "child_ended"),
    ],
)
def test_a_loss_is_counted_by_its_cause_whatever_its_text_says(loss: Loss, label: str) -> None:
    job = Job(PS)
    job.run()
    job.report("worker:1", restarts=1, restarted_for=loss)
    counted = {name: count for name, count in job.core.chronicle.restarts.items() if count}
    assert counted == {label: 1}
    assert label in facts.LABELS
