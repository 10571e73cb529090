"""Tasks that the chief notifies of the end of the job."""

import pytest

from tests.unit.supervisor.jobs import LOST, START, Job
from trainer.job.errors import Exit
from trainer.supervisor.chief.last_replies import LONGEST_SECONDS, unnotified

NO_CHECKPOINT = "; there is no checkpoint yet"


def test_all_are_notified_once_each_has_reported_since_the_end() -> None:
    job = Job()
    job.run()
    job.core.end(Exit.OK, "")
    for name in job.core.tasks.required:
        assert unnotified(job.core, job.now)
        assert job.report(name).phase == "done"
    assert not unnotified(job.core, job.now)


@pytest.mark.parametrize("code", [Exit.OK, Exit.USER])
def test_if_the_job_ends_before_all_tasks_reported_the_missing_ones_are_notified_too(code: Exit) -> None:
    job = Job()
    job.core.end(code, "already complete, or refused")  # by the chief, which needs no report for it
    for name in ("worker:2", "worker:1"):
        assert unnotified(job.core, job.now)
        assert job.report(name).code == code
    assert not unnotified(job.core, job.now)


def test_tasks_that_missed_the_deadline_are_no_longer_awaited() -> None:
    job = Job()
    job.arrive("worker:0", "worker:1")
    job.wait(START + 1)
    job.arrive("worker:0", "worker:1")
    assert job.outcome == ("failed", Exit.MISSING)
    assert not unnotified(job.core, job.now)


@pytest.mark.parametrize("code", [Exit.OK, Exit.DIVERGED])
@pytest.mark.parametrize("leaving", [False, True], ids=["lost", "asked to stop"])
def test_a_task_that_may_return_is_awaited_as_long_as_it_would_wait_for_its_chief(code: Exit, leaving: bool) -> None:
    job = Job()
    job.run()
    job.report("worker:2", leaving=leaving)
    job.now += 2 * LOST
    job.core.end(code, "")
    job.arrive("worker:0", "worker:1")
    assert unnotified(job.core, job.now) == ["worker:2"]
    job.now += job.spec.deadlines.chief_lost
    assert not unnotified(job.core, job.now)


@pytest.mark.parametrize(("code", "message"), [(Exit.OK, "why"), (Exit.DIVERGED, f"why{NO_CHECKPOINT}")])
def test_a_task_that_returns_after_the_end_receives_the_outcome(code: Exit, message: str) -> None:
    job = Job()
    job.run()
    job.core.end(code, "why")
    job.now += 2 * LOST
    job.arrive("worker:0", "worker:1")
    job.restart("worker:2")
    assert not unnotified(job.core, job.now)
    assert (job.report("worker:2").code, job.report("worker:2").message) == (code, message)


def test_a_task_that_has_not_reported_yet_is_awaited_from_the_start_of_the_chief() -> None:
    job = Job()
    job.core.end(Exit.USER, "refused")
    assert unnotified(job.core, job.now) == ["worker:1", "worker:2"]
    job.now += START
    assert unnotified(job.core, job.now)
    job.now += 1
    assert not unnotified(job.core, job.now)


def test_a_chief_asked_to_stop_does_not_wait_for_absent_tasks() -> None:
    job = Job()
    job.run()
    job.now += 2 * LOST
    job.arrive("worker:0")
    job.core.end(Exit.DIVERGED, "x")
    job.report("worker:1", leaving=True)
    job.core.tasks.members["worker:0"].notified = True
    assert not unnotified(job.core, job.now, leaving=True)


def test_a_stopping_job_waits_only_for_tasks_that_are_still_there() -> None:
    job = Job()
    job.run()
    job.report("worker:2", leaving=True)
    job.core.end(Exit.STOPPED, "stopped")
    assert unnotified(job.core, job.now) == ["worker:0", "worker:1"]
    job.now += LOST + 1
    assert not unnotified(job.core, job.now)


def test_a_job_that_has_ended_does_not_hold_its_node_for_deadlines_of_half_an_hour() -> None:
    job = Job(deadlines={"start": 1800, "chief_lost": 1800})
    job.core.end(Exit.USER, "refused")
    assert unnotified(job.core, job.now) == ["worker:1", "worker:2"]
    job.now += LONGEST_SECONDS + 1
    assert not unnotified(job.core, job.now)


def test_a_lost_task_does_not_hold_the_node_of_its_chief_either() -> None:
    job = Job(deadlines={"start": 1800, "chief_lost": 1800})
    job.run()
    job.now += 2 * LOST
    job.core.end(Exit.OK, "")
    job.arrive("worker:0", "worker:1")
    assert unnotified(job.core, job.now) == ["worker:2"]
    job.now += LONGEST_SECONDS
    assert not unnotified(job.core, job.now)
