"""Steps, deadlines and generations without progress, in a rendezvous."""

import pytest

from tests.unit.supervisor.jobs import ASKED, PROGRESS, Job, fail_once_more, lose_child, step
from trainer.job.errors import Exit
from trainer.protocol.child import ChildStatus
from trainer.protocol.facts import Cause, Loss, Note, Stalled
from trainer.supervisor.rendezvous.progress import Progress, ProgressWatch

EXITED = Loss(Cause.EXITED, status=1)


def test_no_new_step_for_too_long_starts_a_new_generation() -> None:
    job = Job()
    job.run()
    job.wait(PROGRESS - 1)
    step(job, 10)
    job.wait(PROGRESS)
    assert job.outcome == ("running", Exit.OK)
    job.wait(1 + ASKED)
    assert job.outcome == ("forming", Exit.OK)
    assert job.logged[-1] == "no new step for 300 s (deadlines.progress)"
    assert job.facts[-1] == Stalled(Loss(Cause.NO_NEW_STEP, seconds=PROGRESS, setting="deadlines.progress"))


def test_a_child_that_indexes_files_may_take_longer_than_its_deadline() -> None:
    job = Job()
    job.run()
    for done in range(5):
        job.report("worker:0", status=ChildStatus(indexed=1000 + done))
        job.wait(PROGRESS)
    assert job.outcome == ("running", Exit.OK)
    job.wait(1 + ASKED)
    assert job.outcome == ("forming", Exit.OK)


def test_all_tasks_wait_for_one_that_indexes_files_and_the_log_names_it() -> None:
    job = Job()
    job.run()
    job.report("worker:0", status=ChildStatus(has_index=True))
    for done in range(3):
        job.report("worker:2", status=ChildStatus(indexed=1000 + done))
        job.wait(PROGRESS)
    assert job.outcome == ("running", Exit.OK)
    assert job.logged[1:] == ["the job waits for worker:2, which indexes its files"], "once"
    assert job.facts[-1] == Note(job.logged[-1], "worker:2")
    job.wait(1 + ASKED)
    assert job.outcome == ("forming", Exit.OK)
    assert job.logged[-1] == (
        "no new step for 300 s (deadlines.progress); it waited for worker:2, which indexed its files"
    )


def test_a_task_that_has_indexed_its_files_is_not_waited_for() -> None:
    job = Job()
    job.run()
    job.report("worker:0", status=ChildStatus(has_index=True))
    for status in ({"indexed": 1}, {"indexed": 2}, {"has_index": True}, {"has_index": True, "step": 0}):
        job.wait(20)
        job.report("worker:1", status=ChildStatus(**status))
    step(job, 0, has_index=True)
    job.wait(PROGRESS + 1 + ASKED)
    assert job.logged[1:] == [
        "the job waits for worker:1, which indexes its files", "no new step for 300 s (deadlines.progress)"
    ]  # fmt: skip


def test_of_several_tasks_the_one_that_still_indexes_is_waited_for() -> None:
    job = Job()
    job.run()
    for name in ("worker:1", "worker:2"):
        job.report(name, status=ChildStatus(indexed=1))
    job.report("worker:0", status=ChildStatus(has_index=True))
    job.wait(20)
    job.report("worker:1", status=ChildStatus(has_index=True))
    job.report("worker:2", status=ChildStatus(indexed=2))
    job.wait(PROGRESS + 1 + ASKED)
    assert job.logged[1:] == [
        "the job waits for worker:2, which indexes its files",
        "no new step for 300 s (deadlines.progress); it waited for worker:2, which indexed its files",
    ]


def test_a_chief_without_its_own_index_waits_for_no_other() -> None:
    job = Job()
    job.run()
    for done in range(3):
        job.wait(20)
        job.report("worker:1", status=ChildStatus(indexed=done))
    job.wait(PROGRESS + 1 + ASKED)
    assert job.logged[1:] == ["no new step for 300 s (deadlines.progress)"]


def test_tasks_that_index_files_together_are_not_waited_for() -> None:
    job = Job()
    job.run()
    for done in range(3):
        for name in job.core.tasks.required:
            job.report(name, status=ChildStatus(indexed=1000 + done))
        job.wait(5)
    step(job, 1)
    job.wait(PROGRESS + 1 + ASKED)
    assert job.logged[1:] == ["no new step for 300 s (deadlines.progress)"]


def test_a_task_that_indexes_files_is_no_life_of_another_generation_or_of_an_evaluator() -> None:
    job = Job({"worker": 2, "evaluator": 1})
    job.run()
    job.wait(PROGRESS)
    job.report("evaluator:0", generation=1, status=ChildStatus(indexed=5))
    job.report("worker:1", generation=0, status=ChildStatus(indexed=6))
    job.wait(1 + ASKED)
    assert job.outcome == ("forming", Exit.OK)


def test_each_generation_has_the_whole_deadline_for_its_first_step() -> None:
    job = Job()
    job.run()
    job.wait(PROGRESS - 5)
    fail_once_more(job)
    job.wait(PROGRESS)
    assert (job.core.phase, job.core.generation) == ("running", 2)


def test_only_the_chief_counts_steps() -> None:
    job = Job()
    job.run()
    job.report("worker:1", status=ChildStatus(step=99))
    assert job.report("worker:2").step == 0
    step(job, 5)
    assert job.report("worker:2").step == 5


def test_the_chief_may_take_its_time_to_finish() -> None:
    job = Job()
    job.run()
    step(job, 10, finishing=True)
    job.wait(2 * PROGRESS)
    assert job.core.phase == "running"


def test_an_evaluation_that_does_not_end_ends_the_job_at_its_own_deadline() -> None:
    job = Job(deadlines={"evaluation": 20.0})
    job.run()
    step(job, 10)
    job.wait(50)
    step(job, 10, finishing=True)
    job.wait(20)
    assert job.outcome == ("running", Exit.OK), "not counted from the last step"
    job.wait(1 + ASKED)
    assert job.outcome == ("failed", Exit.EVALUATION)
    assert job.report("worker:2").message == (
        "worker:0: the final evaluation and export took longer than 20 s (deadlines.evaluation); the trained "
        "checkpoint is kept: fix data('test') or evaluate(), or raise the deadline, and the same command evaluates it"
    )


def test_a_validation_at_the_end_of_an_epoch_has_the_deadline_of_an_evaluation() -> None:
    job = Job(deadlines={"evaluation": 2.0 * PROGRESS})
    job.run()
    step(job, 10)
    step(job, 10, evaluating=True)
    job.wait(2 * PROGRESS)
    step(job, 10)
    job.wait(PROGRESS)
    assert job.outcome == ("running", Exit.OK)
    step(job, 11, evaluating=True)
    job.wait(2 * PROGRESS + 1 + ASKED)
    assert job.outcome == ("failed", Exit.EVALUATION)
    assert "validation and callbacks at the end of an epoch took longer than 600 s" in job.core.message


def test_reading_test_data_before_the_first_step_has_the_deadline_of_an_evaluation() -> None:
    job = Job(deadlines={"evaluation": 2.0 * PROGRESS})
    job.run()
    job.wait(PROGRESS)
    job.report("worker:0", status=ChildStatus(evaluating=True))
    job.wait(2 * PROGRESS)
    assert job.outcome == ("running", Exit.OK)
    job.wait(1 + ASKED)
    assert job.outcome == ("failed", Exit.EVALUATION)
    assert job.core.message == (
        "worker:0: reading the test data before the first step took longer than 600 s (deadlines.evaluation); make "
        "data('test') quicker, or raise the deadline"
    )


def test_an_evaluation_that_restarts_has_the_whole_deadline_again() -> None:
    job = Job(deadlines={"evaluation": 20.0})
    job.run()
    step(job, 10, finishing=True)
    job.wait(15)
    lose_child(job, "worker:1")
    job.stop_children()
    step(job, 0)
    job.run()
    step(job, 10, finishing=True)
    job.wait(20)
    assert job.core.phase == "running"
    job.wait(1 + ASKED)
    assert job.core.code is Exit.EVALUATION


@pytest.mark.parametrize("allowed", [0, 2])
@pytest.mark.parametrize("tasks", [None, {"chief": 1, "worker": 1}])
def test_steps_up_to_the_highest_of_all_generations_are_no_progress(tasks: dict[str, int] | None, allowed: int) -> None:
    job = Job(tasks, max_restarts=allowed)
    job.run()
    name = job.core.tasks.required[-1]
    step(job, 188)  # it crashes there each time, and no checkpoint was written before
    for _ in range(allowed + 1):
        assert job.core.phase == "running"
        job.report(name, generation=0, ended_early=job.core.generation, loss=EXITED)
        job.stop_children()
        for other in job.core.tasks.required:
            job.report(other, generation=job.core.generation, ended_early=0, loss=None, status=ChildStatus())
        step(job, 100)
        step(job, 188)
    job.report(name, generation=0, ended_early=job.core.generation, loss=EXITED)
    job.stop_children()
    assert job.outcome == ("failed", Exit.GAVE_UP)
    assert job.core.message.endswith(f"(max_restarts); last: {name} lost ({EXITED})")


def test_a_restarted_chief_remembers_the_highest_step_and_the_generations_without_one() -> None:
    job = Job({"worker": 1}, max_restarts=2)
    job.core.progress.step, job.core.progress.generations_without_progress = 188, 1
    for _ in range(2):
        job.run()
        step(job, 188)
        lose_child(job, "worker:0")
        job.stop_children()
    assert job.outcome == ("failed", Exit.GAVE_UP)


def test_a_step_of_each_generation_keeps_it_going_forever() -> None:
    job = Job(max_restarts=1)
    job.run()
    for generation in range(1, 20):
        step(job, 10 * generation)
        job.checkpoint = 10 * generation
        fail_once_more(job)
    assert job.outcome == ("running", Exit.OK)


def test_steps_up_to_the_checkpoint_are_no_progress() -> None:
    job = Job(max_restarts=1, step=500)
    job.run()
    for _ in range(2):
        step(job, 500)
        fail_once_more(job)
    assert job.outcome == ("failed", Exit.GAVE_UP)


def test_only_a_step_beyond_the_best_one_is_progress() -> None:
    watch = ProgressWatch(Progress(step=50, generations_without_progress=2), since=0.0)
    watch.update(ChildStatus(step=50), {}, 0, 1.0)
    assert (watch.since, watch.progress.generations_without_progress) == (1.0, 2)
    watch.update(ChildStatus(step=60), {}, 70, 2.0)
    assert watch.progress.generations_without_progress == 2, "only what a checkpoint held already"
    watch.update(ChildStatus(step=71), {}, 70, 3.0)
    assert (watch.progress.step, watch.progress.generations_without_progress) == (71, 0)


def test_a_worker_without_a_new_step_did_not_step() -> None:
    watch = ProgressWatch(Progress(), since=0.0)
    rows = {"worker:0": ChildStatus(step=1), "worker:1": ChildStatus()}
    assert watch.update(ChildStatus(), rows, 0, 1.0) == ["worker:0"]
    assert watch.update(ChildStatus(), rows, 0, 2.0) == []
