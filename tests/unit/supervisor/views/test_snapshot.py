"""The states of tasks as /status shows them."""

from typing import Any

from tests.unit.supervisor.jobs import LOST, PS, Job
from trainer.job.errors import Exit
from trainer.model_dir.state import PaceCounters
from trainer.protocol.child import ChildStatus
from trainer.protocol.status import JobStatus, TaskRow, TaskStatus
from trainer.supervisor.views import snapshot
from trainer.supervisor.views.pace import Pace
from trainer.supervisor.views.stragglers import Stragglers


def test_status_shows_the_state_of_every_task() -> None:
    job = Job({**PS, "evaluator": 1})

    def states() -> list[str]:
        return [task.state for task in snapshot.task_rows(job.core, job.now).values()]

    assert states() == ["absent"] * 5
    job.arrive("chief:0", "ps:0")
    assert states() == ["waiting", "absent", "absent", "waiting", "absent"]
    job.run()
    job.wait(LOST + 1, "worker:1")
    assert states() == ["running", "running", "lost", "running", "absent"]
    job.report("worker:0", restarts=2, standby=True, status=ChildStatus(step=7))
    assert snapshot.task_rows(job.core, job.now)["worker:0"] == TaskRow(
        state="running", generation=1, restarts=2, standby=True, step=7
    )
    job.core.end(Exit.OK, "")
    assert states() == ["done", "done", "done", "done", "absent"]


def job_status(job: Job, of_chief: ChildStatus, **more: Any) -> JobStatus:
    own = TaskStatus(
        job="j", task=job.chief, strategy="", phase="running", generation=1, restarts=0, standby=False, **vars(of_chief)
    )
    rows = snapshot.task_rows(job.core, job.now, more.pop("workers", None))
    pace, slow = Pace(PaceCounters(), 0.0), Stragglers(in_sync=True)
    return snapshot.job_status(
        own, rows, job.core, job.now, last_checkpoint=None, seconds=1.0, stragglers=slow, pace=pace, **more
    )


def rates(status: JobStatus) -> dict[str, float | None]:
    return {"job": status.examples_per_second, **{name: row.examples_per_second for name, row in status.tasks.items()}}


def test_the_rate_of_a_job_is_that_of_all_its_tasks_together() -> None:
    job = Job({"worker": 3, "evaluator": 1})
    job.run()
    each = ChildStatus(step=7, figures={"loss": 0.5, "examples_per_second": 100.0})
    for name in ("worker:0", "worker:1", "worker:2", "evaluator:0"):
        job.report(name, status=each)
    status = job_status(job, each)
    assert rates(status) == {
        "job": 300, "worker:0": 100, "worker:1": 100, "worker:2": 100, "evaluator:0": 100,
    }  # fmt: skip
    assert status.loss == 0.5


def test_a_coordinator_measures_that_of_all_and_has_none_of_its_own() -> None:
    job = Job(PS)
    job.run()
    of_chief = ChildStatus(step=7, figures={"loss": 0.5, "examples_per_second": 90.0})
    job.report("chief:0", status=of_chief)
    workers = {f"worker:{i}": ChildStatus(figures={"examples_per_second": 45.0}) for i in range(2)}
    status = job_status(job, of_chief, workers=workers)
    assert rates(status) == {"job": 90, "chief:0": None, "worker:0": 45, "worker:1": 45, "ps:0": None}
    assert status.tasks["chief:0"].loss == 0.5


def test_of_a_job_without_a_rate_there_is_none() -> None:
    job = Job({"worker": 2})
    job.run()
    assert job_status(job, ChildStatus(figures={"loss": 0.5})).figures == {"loss": 0.5}


def test_what_comes_after_the_last_step_is_said_with_what_is_left() -> None:
    job = Job({"worker": 1})
    job.run()
    assert job_status(job, ChildStatus(step=7, steps=10)).ending is None
    left = "evaluating on the test data, saving the exports, checking the exports"
    assert job_status(job, ChildStatus(step=10, steps=10)).ending == f"saving the last checkpoint; then {left}"
    evaluates = ChildStatus(step=10, steps=10, finishing=True, ending="evaluating on the test data, batch 3 of 10")
    assert job_status(job, evaluates).ending == evaluates.ending
    assert job_status(job, ChildStatus(step=10, steps=10, finishing=True)).ending is None, "of an older child"


def test_a_program_may_do_anything_after_its_last_step() -> None:
    """The time left to that step, which is none, is not the job's."""
    job = Job({"worker": 1}, program=["python", "-c", "pass"])
    job.run()
    assert job_status(job, ChildStatus(step=9, steps=10)).ending is None
    assert job_status(job, ChildStatus(step=10, steps=10)).ending == "waiting for the programs to end"


def test_a_job_that_is_over_is_not_stalled() -> None:
    job = Job({"worker": 1})
    job.run()
    assert job_status(job, ChildStatus(), stalled="no new step for 50 s").stalled == "no new step for 50 s"
    job.core.end(Exit.USER, "x")
    assert job_status(job, ChildStatus(), stalled="no new step for 50 s").stalled is None
