"""The question for stacks, and what a rendezvous does with the answers."""

from __future__ import annotations

from tests.unit.supervisor.jobs import ASKED, KILLED, PROGRESS, Job, step
from trainer.job.errors import Exit
from trainer.model_dir.stacks import Frame
from trainer.protocol.facts import Cause, Hung, Loss, Lost
from trainer.protocol.stacks import State, TaskStacks
from trainer.supervisor.rendezvous import gathering

WAITS = [Frame("socket.py", 706, "readinto", False), Frame("mine.py", 41, "read", True)]


def answer(job: Job, task: str, doing: str = "in step 12") -> None:
    number = job.core.gathering.number
    threads = [WAITS] if task == "worker:2" else []
    job.report(task, stacks=TaskStacks(number, doing=doing, threads=threads))


def running() -> Job:
    job = Job()
    job.run()
    step(job, 11)
    return job


def test_a_silent_child_makes_the_chief_ask_all_and_name_the_one_that_hangs() -> None:
    job = running()
    before = job.core.version
    reply = job.report("worker:0", hangs=True)
    assert reply.stacks == job.core.gathering.number > 0
    assert reply.version > before, "held reports are answered at once"
    for task in ("worker:1", "worker:2", "worker:0"):
        answer(job, task)
    job.core.tick(job.now)
    named = "worker:2 is at mine.py:41 read(); the others wait for it in step 12"
    assert job.logged[-1] == f"the job hangs: {named}"
    assert job.facts[-1] == Hung(named)
    assert [found.text for found in job.core.gathering.hangs] == [named]
    assert job.report("worker:0", hangs=False).stacks == 0
    assert job.outcome == ("running", Exit.OK), "the child's own supervisor ends it"


def test_a_child_that_stays_silent_is_one_hang() -> None:
    job = running()
    for _ in range(5):
        job.report("worker:0", hangs=True)
        job.wait(ASKED)
    assert len(job.core.gathering.hangs) == 1


def test_a_task_that_does_not_answer_is_not_waited_for() -> None:
    job = running()
    job.report("worker:0", hangs=True)
    answer(job, "worker:0")
    answer(job, "worker:2")
    job.core.tick(job.now)
    assert job.core.gathering.number, "worker:1 has time to answer"
    job.now += gathering.ANSWER_SECONDS
    job.core.tick(job.now)
    assert "worker:2 is at mine.py:41 read()" in job.logged[-1]


def test_a_stall_is_explained_before_the_job_acts_on_it() -> None:
    job = running()
    for _ in range(round(PROGRESS)):
        job.wait(1)
    job.now += 1
    job.core.tick(job.now)
    assert job.outcome == ("running", Exit.OK), "it asks first"
    for task in ("worker:0", "worker:1", "worker:2"):
        answer(job, task)
    job.core.tick(job.now)
    assert job.outcome == ("forming", Exit.OK)
    where = "worker:2 is at mine.py:41 read(); the others wait for it in step 12"
    assert job.logged[-1] == f"no new step for 300 s (deadlines.progress); {where}"


def test_a_step_that_comes_while_it_asks_ends_the_stall() -> None:
    job = running()
    job.wait(PROGRESS)
    job.now += 1
    job.core.tick(job.now)
    step(job, 12)
    job.wait(ASKED)
    assert job.outcome == ("running", Exit.OK)
    assert not any("no new step" in line for line in job.logged)


SILENT_PEER = "UnavailableError: The following tasks are unhealthy (stopped sending heartbeats): /job:worker/task:1"
MISSED = Loss(Cause.PEER_SILENT, SILENT_PEER, blames_peer=True)


def test_a_peer_that_tensorflow_misses_is_looked_at_before_a_new_generation_ends_its_child() -> None:
    job = running()
    for task in ("worker:2", "worker:0"):
        assert job.report(task, generation=0, ended_early=1, loss=MISSED).phase == "running"
    answers: dict[str, State] = {"worker:0": "no child", "worker:2": "no child", "worker:1": "stopped"}
    for task, state in answers.items():
        assert job.outcome == ("running", Exit.OK)
        job.report(task, stacks=TaskStacks(job.core.gathering.number, state))
        job.core.tick(job.now)
    assert job.logged[-2:] == [
        "the job hangs: worker:1 is stopped by a signal (SIGSTOP); SIGCONT continues it",
        f"worker:2 lost ({SILENT_PEER}), re-forming",
    ]
    assert job.facts[-1] == Lost("worker:2", MISSED, "re_forming")
    assert job.outcome == ("forming", Exit.OK)
    assert job.report("worker:1").stacks == 0


def test_a_peer_that_tensorflow_misses_with_its_machine_is_not_waited_for() -> None:
    job = running()
    job.report("worker:2", generation=0, ended_early=1, loss=MISSED)
    job.now += gathering.ANSWER_SECONDS
    job.core.tick(job.now)
    assert job.outcome == ("forming", Exit.OK)


def test_an_error_of_a_killed_peer_delays_no_new_generation() -> None:
    job = running()
    reset = Loss(Cause.PEER_LOST, "UnavailableError: Collective ops is aborted by: Socket closed", blames_peer=True)
    job.report("worker:2", generation=0, ended_early=1, loss=reset)
    assert (job.outcome, job.core.gathering.number) == (("forming", Exit.OK), 0)


def test_a_loss_that_another_one_has_overtaken_is_not_counted_in_the_next_generation() -> None:
    job = running()
    job.report("worker:2", generation=0, ended_early=1, loss=MISSED)
    job.report("worker:1", generation=0, ended_early=1, loss=KILLED)
    assert job.outcome == ("forming", Exit.OK)
    job.stop_children()
    job.run()
    job.wait(ASKED)
    assert (job.core.generation, job.outcome) == (2, ("running", Exit.OK))


def test_a_peer_that_is_missed_while_the_job_forms_is_not_lost_in_the_next_generation() -> None:
    job = running()
    job.core.ask_for_stacks(job.now)
    job.report("worker:1", generation=0, ended_early=1, loss=KILLED)
    job.report("worker:2", generation=0, ended_early=1, loss=MISSED, stacks=None)
    assert job.core.gathering.number, "worker:2 has not answered"
    job.stop_children()
    job.run()
    job.wait(ASKED)
    assert (job.core.generation, job.outcome) == (2, ("running", Exit.OK))


def test_a_user_who_asks_changes_nothing() -> None:
    job = running()
    before = job.logged
    job.core.ask_for_stacks(job.now)
    job.wait(ASKED)
    assert job.core.gathering.last.groups
    assert job.core.gathering.hangs == []
    assert job.logged == before


def test_a_standstill_is_no_hang_yet_and_does_not_hide_one() -> None:
    job = running()
    job.core.ask_for_stacks(job.now, "standstill")
    for task in job.core.tasks.required:
        answer(job, task)
    job.core.tick(job.now)
    assert job.core.gathering.last.text == "worker:2 is at mine.py:41 read(); the others wait for it in step 12"
    assert (job.core.gathering.hangs, job.core.chronicle.restarts.total(), job.core.phase) == ([], 0, "running")
    job.core.ask_for_stacks(job.now, "standstill")
    job.core.ask_for_stacks(job.now, "silence")
    job.core.ask_for_stacks(job.now, "asked")
    job.wait(1)
    assert len(job.core.gathering.hangs) == 1


def test_an_evaluator_that_hangs_is_not_the_jobs_hang() -> None:
    job = Job({"worker": 2, "evaluator": 1})
    job.run()
    job.report("evaluator:0", generation=1, hangs=True)
    assert job.core.gathering.number == 0


def test_numbers_of_a_later_chief_are_not_lower() -> None:
    first, second = gathering.Gathering(), gathering.Gathering()
    first.begin(0.0, "asked")
    second.begin(0.0, "asked")
    assert 0 < first.number <= second.number


def test_at_most_a_few_hangs_are_kept() -> None:
    found = gathering.Gathering()
    for number in range(20):
        found.begin(number * gathering.AGAIN_SECONDS, "silence")
        assert found.close([], number * gathering.AGAIN_SECONDS) == "silence"
    assert len(found.hangs) == gathering.HANGS_KEPT
