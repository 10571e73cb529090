"""A rendezvous whose tasks run programs: which end of a program ends the job, re-forms it, or means nothing."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.supervisor.jobs import KILLED, LOST, PS, Job
from trainer.job.errors import Exit
from trainer.protocol.child import ChildStatus
from trainer.protocol.facts import Cause, Loss
from trainer.supervisor.rendezvous.first_cause import CULPRIT_SECONDS, EARLY_SECONDS, SETTLE_SECONDS
from trainer.supervisor.rendezvous.policy import UNSEEN_PROGRESS
from trainer.supervisor.rendezvous.state_machine import UNDISTURBED_SECONDS

PROGRAM: dict[str, Any] = {"program": ["python", "x.py"]}
FAILED = Loss(
    Cause.PROGRAM_ENDED, "ValueError: x", "its program exited with code 1: ValueError: x", int(Exit.PROGRAM), status=1
)
BLAMES = replace(FAILED, blames_peer=True)


def ends(job: Job, name: str, **how: Any) -> None:
    job.report(name, generation=0, ended_early=job.core.generation, **how)


def test_a_failure_ends_the_job_once_all_others_have_reported() -> None:
    job = Job({"worker": 3}, **PROGRAM)
    job.run()
    ends(job, "worker:0", loss=BLAMES)
    ends(job, "worker:2", loss=FAILED)
    assert job.outcome[0] == "running"
    job.wait(SETTLE_SECONDS + 1)
    assert job.outcome == ("failed", Exit.PROGRAM)
    assert job.core.message.startswith("worker:2: its program exited with code 1")


def test_a_task_that_falls_silent_is_the_cause_of_the_others_errors() -> None:
    """Its node is lost: no report of its end ever comes, and the peers' programs end with errors of their own."""
    job = Job({"worker": 3}, **PROGRAM)
    job.run()
    job.wait(1)
    ends(job, "worker:0", loss=FAILED)
    ends(job, "worker:1", loss=BLAMES)
    job.wait(LOST - 2, "worker:2")
    assert job.outcome[0] == "running", "worker:2 may be the cause"
    job.wait(3, "worker:2")
    assert job.outcome[0] == "forming"
    assert job.logged[-1] == f"worker:2 lost (silent for {LOST:g} s), re-forming"


def test_a_failure_of_an_earlier_generation_does_not_end_the_next() -> None:
    job = Job({"worker": 2}, **PROGRAM)
    job.run()
    ends(job, "worker:0", loss=FAILED)
    ends(job, "worker:1", loss=KILLED)
    job.wait(2)
    assert (job.core.phase, job.core.generation) == ("running", 2), "formed again: no program runs"
    assert "worker:1 lost (killed by SIGKILL), re-forming" in job.logged
    job.wait(5)  # the same reports, before its supervisor has started the program again
    assert job.outcome[0] == "running"


def test_an_error_of_a_lost_peer_twice_without_any_loss_is_the_tasks_own() -> None:
    job = Job({"worker": 2}, **PROGRAM)
    job.run()
    for _ in range(2):
        assert job.outcome[0] == "running"
        ends(job, "worker:1", loss=BLAMES)
        job.wait(CULPRIT_SECONDS + 1)
        job.report("worker:0", generation=0)
        job.wait(1)
    assert job.outcome == ("failed", Exit.PROGRAM)
    assert "twice, and no other task was lost" in job.core.message


@pytest.mark.parametrize("max_restarts", [0, 5])
def test_a_worker_whose_program_ends_before_the_others_is_named_first(max_restarts: int) -> None:
    """It has fewer batches (tensorflow/tensorflow#58434): seconds later the others get an error of a lost peer."""
    job = Job({"worker": 2}, max_restarts=max_restarts, **PROGRAM)
    job.run()
    for _ in range(2 if max_restarts else 1):
        assert job.outcome[0] == "running"
        for name in job.core.tasks.required:
            job.report(name, generation=job.core.generation, ended_early=0, loss=None)
        job.report("worker:1", generation=0, finished=job.core.generation)
        job.wait(EARLY_SECONDS - 1)
        assert "ended with exit code 0" not in job.logged[-1], "programs that train together end at about the same time"
        job.wait(17)
        assert "worker:1: its program has ended with exit code 0, and those of the others still run" in job.logged
        ends(job, "worker:0", loss=BLAMES)
        job.wait(SETTLE_SECONDS + CULPRIT_SECONDS)
        job.report("worker:1", generation=0, finished=0)
        job.report("worker:0", generation=0)
    assert job.outcome == ("failed", Exit.PROGRAM if max_restarts else Exit.GAVE_UP)
    first = "worker:1: its program ended with exit code 0, 19 s before those of the others, which could not go on"
    assert job.core.message.startswith(first)
    assert "worker:0" in job.core.message
    assert "ValueError: x" in job.core.message


def test_a_worker_whose_program_ends_before_the_others_hang_is_named_first() -> None:
    """They wait for it until deadlines.progress, and get no error."""
    job = Job({"worker": 2}, max_restarts=1, **PROGRAM)
    job.run()
    for _ in range(2):
        for name in job.core.tasks.required:
            job.report(name, generation=job.core.generation, ended_early=0, loss=None)
        job.report("worker:1", generation=0, finished=job.core.generation)
        job.wait(60)
        ends(job, "worker:0", loss=Loss(Cause.HANG, "at x.py:6 <module>", seconds=60, setting="deadlines.progress"))
        job.wait(SETTLE_SECONDS + 1)
        job.report("worker:1", generation=0, finished=0)
        job.report("worker:0", generation=0)
    assert job.outcome == ("failed", Exit.GAVE_UP)
    first = "worker:1: its program ended with exit code 0, 60 s before those of the others, which could not go on"
    assert job.core.message.startswith(first)
    assert "x.py:6" in job.core.message


def test_the_end_of_a_worker_of_parameter_server_before_the_chief_is_no_event() -> None:
    job = Job({"chief": 1, "worker": 2, "ps": 1}, **PROGRAM)
    job.run()
    job.report("worker:1", generation=0, finished=job.core.generation)
    job.wait(60)
    assert not any("exit code 0" in line for line in job.logged)


def test_a_worker_of_parameter_server_that_fails_by_itself_ends_the_job() -> None:
    job = Job(PS, **PROGRAM)
    assert job.chief == "worker:0"
    job.run()
    job.report("worker:1", generation=job.core.generation, restarts=1, restarted_for=KILLED)
    assert job.outcome[0] == "running"
    ends(job, "worker:1", loss=FAILED)
    job.wait(SETTLE_SECONDS + 1)
    assert job.outcome == ("failed", Exit.PROGRAM)


def test_the_chief_s_end_re_forms_parameter_server_also_where_it_is_a_worker() -> None:
    job = Job(PS, **PROGRAM)
    job.run()
    ends(job, "worker:0", loss=KILLED)
    job.wait(1)
    assert "worker:0 lost (killed by SIGKILL), re-forming" in job.logged


def test_success_waits_for_the_tasks_that_the_spec_names() -> None:
    for success, waits in (("chief", []), ("all_workers", ["worker:0", "worker:1"])):
        job = Job({"chief": 1, "worker": 2, "ps": 1}, success=success, **PROGRAM)
        job.run()
        assert job.core.tasks.unfinished(job.core.generation) == ["chief:0", *waits]
        job.report("chief:0", generation=0, finished=1)
        assert job.core.tasks.unfinished(job.core.generation) == waits
        job.report("worker:0", generation=0, finished=1)
        job.report("worker:1", generation=0, finished=1)
        assert job.core.tasks.unfinished(job.core.generation) == []


def test_a_program_that_reports_nothing_is_no_hang() -> None:
    job = Job({"worker": 2}, deadlines={"progress": 5}, **PROGRAM)
    job.run()
    job.wait(60)
    assert (job.core.phase, job.core.generation) == ("running", 1)


def test_a_worker_that_is_lost_often_in_a_job_that_advances_ends_nothing() -> None:
    """Under parameter_server it restarts alone. Whether the job advances is seen by files, or the chief's reports."""
    for wrote, step in ((True, 0), (False, 1), (False, 0)):
        job = Job(PS, max_restarts=2, **PROGRAM)
        job.core._advanced = lambda wrote=wrote: wrote  # type: ignore[misc]
        job.run()
        for restarts in range(1, 7):
            job.report("worker:0", status=ChildStatus(step=step * restarts))
            job.report("worker:1", restarts=restarts, restarted_for=KILLED)
        advances = bool(wrote or step)
        assert job.outcome == (("running", Exit.OK) if advances else ("failed", Exit.GAVE_UP))


@pytest.mark.parametrize("tasks", [PS, {"worker": 2}], ids=["ps", "mwms"])
def test_a_job_whose_progress_is_not_seen_says_so_and_how_to_show_it(tasks: dict[str, int]) -> None:
    job = Job(tasks, max_restarts=2, **PROGRAM)
    job.core._advanced = lambda: None
    job.run()
    for restarts in range(1, 4):
        assert job.outcome[0] == "running"
        lose(job, restarts)
    assert job.outcome == ("failed", Exit.GAVE_UP)
    assert "without a" not in job.core.message, "that is not known"
    assert "killed by SIGKILL" in job.core.message
    ways_out = ("trainer.report", "prints no higher step", "TRAINER_MODEL_DIR", "max_restarts")
    assert all(each in job.core.message for each in ways_out)
    told = [each for each in job.logged if UNSEEN_PROGRESS in each]
    assert len(told) == 1, "after the first loss"
    assert "at most 2 times" in told[0]


@pytest.mark.parametrize("tasks", [PS, {"worker": 2}], ids=["ps", "mwms"])
def test_a_job_whose_progress_is_not_seen_survives_losses_that_are_rare(tasks: dict[str, int]) -> None:
    """Preemptions of a spot node, while checkpoints are in a bucket."""
    for advanced, survives in ((None, True), (False, False)):
        job = Job(tasks, max_restarts=2, **PROGRAM)
        job.core._advanced = lambda advanced=advanced: advanced  # type: ignore[misc]
        job.run()
        for restarts in range(1, 7):
            for _ in range(int(UNDISTURBED_SECONDS) + 1) if job.outcome[0] == "running" else ():
                job.wait(1)
            lose(job, restarts)
        assert job.outcome == (("running", Exit.OK) if survives else ("failed", Exit.GAVE_UP)), advanced


def lose(job: Job, restarts: int) -> None:
    """Kills the program of worker:1; the supervisors start what has to start again."""
    if "ps" in job.spec.tasks.counts():
        job.report("worker:1", restarts=restarts, restarted_for=KILLED)
        return
    ends(job, "worker:1", loss=KILLED)
    job.wait(1)
    job.stop_children()
    if job.outcome[0] == "running":
        for name in job.core.tasks.required:
            job.report(name, generation=job.core.generation, ended_early=0, loss=None)
