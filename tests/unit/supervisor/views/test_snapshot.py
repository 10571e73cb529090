"""The states of tasks as /status shows them."""

from tests.unit.supervisor.jobs import LOST, PS, Job
from trainer.job.errors import Exit
from trainer.protocol.child import ChildStatus
from trainer.protocol.status import TaskRow
from trainer.supervisor.views import snapshot


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
