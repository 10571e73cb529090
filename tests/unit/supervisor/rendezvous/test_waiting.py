"""How long a job waits for tasks that are missing or wrong."""

import pytest

from tests.unit.supervisor.jobs import LOST, PS, REJOIN, START, Job, lose_child
from trainer.job.errors import Exit
from trainer.protocol.child import ChildStatus
from trainer.supervisor.rendezvous.membership import UNREACHABLE_SECONDS


@pytest.mark.parametrize("no_show", [None, "j-worker-1.j does not resolve (DNS)"])
def test_at_the_deadline_a_missing_task_is_named_with_the_reason(no_show: str | None) -> None:
    job = Job()
    job.arrive("worker:0", "worker:2")
    if no_show:
        job.core.tasks.unreachable["worker:1"] = no_show
    job.wait(START)
    assert job.core.phase == "forming"
    job.wait(1)
    assert job.outcome == ("failed", Exit.MISSING)
    why = f"worker:1: has not reported ({no_show or 'not dialled yet'})"
    assert job.core.message == f"the cluster did not form after 100 s (deadlines.start): {why}"


def test_a_task_that_reports_and_does_not_answer_at_its_address_ends_the_job_long_before_the_deadline() -> None:
    job = Job(deadlines={"start": 1800})
    job.arrive("worker:0", "worker:2")
    job.wait(500)
    job.report("worker:1")
    job.reach("worker:1", "at 10.0.0.1:3222 is other worker:1, not j worker:1")
    job.wait(UNREACHABLE_SECONDS)
    assert job.outcome == ("forming", Exit.OK), "a cluster's DNS may be late"
    job.wait(1)
    assert job.outcome == ("failed", Exit.MISMATCH)
    wrong = "worker:1: at 10.0.0.1:3222 is other worker:1, not j worker:1"
    assert job.core.message == f"the cluster cannot form: {wrong}"


def test_after_a_loss_a_task_that_does_not_answer_has_the_same_time() -> None:
    job = Job(PS)
    job.run()
    job.restart("worker:1")
    job.reach("worker:1", "10.0.0.1:3222 refused")
    job.wait(2 * UNREACHABLE_SECONDS)
    assert job.outcome == ("running", Exit.OK), "the other worker trains"
    assert job.logged[-1] == "worker:1: 10.0.0.1:3222 refused; the others continue without it"
    assert job.logged.count(job.logged[-1]) == 1
    job.restart("ps:0")
    job.stop_children()
    job.reach("ps:0")
    job.wait(UNREACHABLE_SECONDS)
    assert job.outcome == ("forming", Exit.OK)
    job.wait(1)
    assert job.outcome == ("failed", Exit.MISMATCH)


def test_time_in_which_the_chief_was_not_ready_is_no_wait_for_others() -> None:
    job = Job()
    for name in job.core.tasks.required:
        job.report(name)
    job.now = START + 50  # it has read its data, and has connected to none
    job.core.begin(job.now)
    job.core.tick(job.now)
    assert job.outcome == ("forming", Exit.OK)
    job.wait(START + 1)
    assert job.outcome == ("failed", Exit.MISSING)


def test_a_task_that_was_unreachable_and_went_away_is_waited_for() -> None:
    job = Job()
    job.arrive("worker:0", "worker:2")
    job.report("worker:1")
    job.reach("worker:1", "10.0.0.1:3222 refused")
    job.wait(START, "worker:1")
    assert job.outcome == ("forming", Exit.OK)
    job.restart("worker:1")
    job.reach("worker:1")
    assert job.outcome == ("running", Exit.OK)


def test_the_deadline_of_the_start_holds_until_a_first_generation_and_that_of_a_loss_later() -> None:
    job = Job(generation=4, deadlines={"start": 300, "rejoin": 30})
    job.wait(299)
    job.run()
    job.wait(LOST + 1, "worker:1")
    for name in ("worker:0", "worker:2"):
        job.report(name, generation=0)
    job.wait(30, "worker:1")
    assert job.outcome == ("forming", Exit.OK)
    job.wait(1, "worker:1")
    assert job.outcome == ("failed", Exit.MISSING)
    assert "did not form after 30 s (deadlines.rejoin): worker:1: silent for 4" in job.core.message


def test_a_lost_task_has_the_whole_deadline_to_come_back() -> None:
    job = Job()
    job.run()
    job.wait(3 * REJOIN)
    lose_child(job, "worker:1")
    job.report("worker:0", generation=0)
    job.wait(REJOIN)
    assert job.core.phase == "forming"
    job.wait(1)
    assert job.outcome == ("failed", Exit.MISSING)
    assert job.core.message.endswith(": worker:2: its child of the last generation still runs")


def test_a_task_that_copies_data_is_awaited_as_long_as_its_copy_grows() -> None:
    job = Job()
    job.arrive("worker:0", "worker:1")
    job.report("worker:2", status=ChildStatus(copying="data.train: 0 of 9 GB"))
    job.reach("worker:2")
    for size in range(1, 4):
        job.wait(START - 1)
        job.report("worker:2", status=ChildStatus(copying=f"data.train: {size} of 9 GB"))
        assert job.core.tasks.waiting_for(job.now) == f"worker:2: data.train: {size} of 9 GB"
    job.wait(START - 1)
    assert job.outcome[0] == "forming"
    job.report("worker:2", status=ChildStatus())
    assert job.outcome[0] == "running"


def test_a_copy_that_does_not_grow_ends_the_job() -> None:
    job = Job()
    job.arrive("worker:0", "worker:1")
    job.report("worker:2", status=ChildStatus(copying="data.train: 3 of 9 GB"))
    job.reach("worker:2")
    job.wait(START + 1)
    assert job.outcome == ("failed", Exit.MISSING)
    assert "worker:2: data.train: 3 of 9 GB" in job.core.message


def test_success_does_not_wait_for_a_lost_worker_for_ever() -> None:
    for success, code in (("all_workers", Exit.MISSING), ("chief", Exit.OK)):
        job = Job({"chief": 1, "worker": 2, "ps": 1}, success=success, program=["python", "x.py"])
        job.run()
        job.wait(REJOIN + 5, "worker:1")
        assert job.outcome[0] == "running", "the others train"
        job.report("chief:0", generation=0, finished=1)
        job.wait(1, "worker:1")
        assert job.outcome[1] == code
    job = Job({"chief": 1, "worker": 2, "ps": 1}, success="all_workers", program=["python", "x.py"])
    job.run()
    job.report("chief:0", generation=0, finished=1)
    job.report("worker:0", generation=0, finished=1)
    job.wait(REJOIN, "worker:1")
    assert job.outcome[0] == "running"
    job.wait(1, "worker:1")
    assert job.outcome == ("failed", Exit.MISSING)
    assert job.core.message == (
        "worker:1 did not come back within 80 s (deadlines.rejoin), and its program has to exit with 0 "
        "(success: all_workers): silent for 81 s"
    )
