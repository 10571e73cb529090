"""The chief's state machine, with a clock of our own."""

import re
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.job.tf_config import tasks_of
from trainer.protocol.reports import Reply, Report
from trainer.protocol.status import TaskRow
from trainer.supervisor import status_view
from trainer.supervisor.rendezvous import EVENTS_KEPT, Rendezvous

RENDEZVOUS, LOST, PROGRESS = 60.0, 10.0, 300.0
DEADLINES = {"rendezvous": RENDEZVOUS, "task_lost": LOST, "progress": PROGRESS}
PS = {"worker": 2, "ps": 1}
VERSIONS = {"tensorflow": "2.21.0", "keras": "3.15.1", "trainer": "0.1.0"}


class Job:
    """A rendezvous, the last report of each task, and the time."""

    def __init__(self, tasks: dict[str, int] | None = None, *, step: int = 0, generation: int = 0, **spec: Any) -> None:
        tasks = tasks or {"worker": 3}
        deadlines = {**DEADLINES, **spec.pop("deadlines", {})}
        strategy = "parameter_server" if "ps" in tasks else "multi_worker_mirrored"
        self.spec = build({"name": "j", "strategy": strategy, "tasks": tasks, "deadlines": deadlines, **spec})
        self.tasks = tasks_of(self.spec)
        self.chief, self.now, self.checkpoint = self.tasks[0].name, 0.0, step
        self.core = Rendezvous(self.spec, self.tasks[0], generation, self.now, lambda: self.checkpoint)
        self.reports = {
            name: Report(name, "first", self.tasks[0].digest, "spec", "workload", VERSIONS)
            for name in (*(task.name for task in self.tasks), "worker:9")
        }

    def report(self, name: str, **changes: Any) -> Reply:
        """That task reports as it did before, but for these changes."""
        self.reports[name] = replace(self.reports[name], **changes)
        return self.core.report(self.reports[name], self.now)

    def reach(self, name: str, problem: str | None = None) -> None:
        """The verdict of dialling that task back."""
        self.core.reachable(name, self.reports[name].incarnation, problem, self.now)

    def arrive(self, *names: str) -> None:
        for name in names or self.core.required:
            self.report(name)
            self.reach(name)

    def run(self) -> None:
        """All are there, and start their children."""
        self.arrive()
        assert self.core.phase == "running"
        for name in self.core.required:
            self.report(name, generation=self.core.generation, lost=0)

    def stop_children(self) -> None:
        """As supervisors do when they hear `forming`."""
        for name in self.core.required:
            self.report(name, generation=0)

    def restart(self, name: str) -> Reply:
        """A new supervisor in the place of that one."""
        return self.report(name, incarnation=f"{self.reports[name].incarnation}+", generation=0, lost=0, status={})

    def wait(self, seconds: float, *silent: str) -> None:
        """Time goes by, a second at a time; who is there keeps reporting, but for those."""
        for _ in range(round(seconds)):
            self.now += 1
            for name in self.core.members:
                if name not in silent:
                    self.report(name)
            self.core.tick(self.now)

    @property
    def outcome(self) -> tuple[str, Exit]:
        return self.core.phase, self.core.code

    @property
    def told(self) -> list[str]:
        return [event.text for event in self.core.events]


# Forming. -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [{"worker": 3}, {"chief": 1, "worker": 2}, PS, {**PS, "evaluator": 1}])
def test_it_forms_when_all_are_there_and_reachable(tasks: dict[str, int]) -> None:
    job = Job(tasks, step=700, generation=4)
    *others, last = job.core.required
    job.arrive(*others)
    assert job.report(last) == Reply("forming", 4, 0, version=1)
    job.reach(last)
    assert job.report(last) == Reply("running", 5, 700, version=2)
    assert job.told == ["generation 5 formed: " + f"{len(job.core.required)} tasks"]


def test_the_order_in_which_tasks_come_does_not_matter() -> None:
    job = Job()
    job.arrive("worker:2", "worker:1", "worker:0")
    assert job.core.phase == "running"


@pytest.mark.parametrize("running", [False, True], ids=["forming", "running"])
def test_a_report_is_no_more_work_with_more_tasks(running: bool) -> None:
    def lines_run(workers: int) -> int:
        count = 0

        def trace(*_: Any) -> Any:
            nonlocal count
            count += 1
            return trace

        job = Job({"worker": workers})
        if running:
            job.run()
        else:
            job.arrive(*job.core.required[:-1])
        sys.settrace(trace)
        job.report("worker:0")
        sys.settrace(None)
        return count

    assert lines_run(4) == lines_run(400)


# Each: what a task says or does, and why the cluster waits for it.
IN_THE_WAY: list[tuple[dict[str, Any], str | None, str]] = [
    ({"generation": 1}, None, "its child of the last generation still runs"),
    ({"leaving": True}, None, "was told to stop"),
    ({}, "10.0.0.1:3222 refused", "10.0.0.1:3222 refused"),
]


@pytest.mark.parametrize(("changes", "problem", "why"), IN_THE_WAY)
def test_one_task_that_is_not_ready_keeps_the_cluster_from_forming(
    changes: dict[str, Any], problem: str | None, why: str
) -> None:
    job = Job()
    job.arrive("worker:0", "worker:2")
    job.report("worker:1", **changes)
    job.reach("worker:1", problem)
    assert job.core.waiting_for(job.now) == f"worker:1: {why}"
    job.report("worker:1", generation=0, leaving=False)
    job.reach("worker:1")
    assert job.core.phase == "running"


def test_a_verdict_on_an_earlier_process_says_nothing_about_this_one() -> None:
    job = Job({"worker": 1})
    job.report("worker:0")
    job.core.reachable("worker:0", "another", None, job.now)
    assert job.core.waiting_for(job.now) == "worker:0: its address was not tried yet"


@pytest.mark.parametrize("no_show", [None, "j-worker-1.j does not resolve (DNS)"])
def test_at_the_deadline_a_missing_task_is_named_with_the_reason(no_show: str | None) -> None:
    job = Job()
    job.arrive("worker:0", "worker:2")
    if no_show:
        job.core.unreachable["worker:1"] = no_show
    job.wait(RENDEZVOUS)
    assert job.core.phase == "forming"
    job.wait(1)
    assert job.outcome == ("failed", Exit.MISSING)
    why = f"worker:1: never came ({no_show or 'not dialled yet'})"
    assert job.core.message == f"the cluster did not form after 60 s (deadlines.rendezvous): {why}"


def test_at_the_deadline_a_wrong_address_is_named() -> None:
    job = Job()
    job.arrive("worker:0", "worker:2")
    job.report("worker:1")
    job.reach("worker:1", "at 10.0.0.1:3222 is other worker:1, not j worker:1")
    job.wait(RENDEZVOUS + 1)
    assert job.outcome == ("failed", Exit.MISSING)
    assert job.core.message.endswith(": worker:1: at 10.0.0.1:3222 is other worker:1, not j worker:1")


@pytest.mark.parametrize("tasks", [{**PS, "evaluator": 1}, {"worker": 2, "evaluator": 1}])
def test_an_evaluator_that_is_restarted_disturbs_nobody(tasks: dict[str, int]) -> None:
    job = Job(tasks)
    job.run()
    job.report("evaluator:0", generation=1)
    assert job.restart("evaluator:0").phase == "running"
    assert job.core.generation == 1
    assert "evaluator:0 lost (its supervisor was restarted); nobody waits for it" in job.told


@pytest.mark.parametrize("code", [Exit.USER, Exit.BUG, Exit.EVALUATION, Exit.OK])
def test_a_failure_of_the_evaluator_is_not_the_jobs(code: Exit) -> None:
    job = Job({**PS, "evaluator": 1})
    job.run()
    assert job.report("evaluator:0", failure=(int(code), "pruned meanwhile")).phase == "running"
    assert job.outcome == ("running", Exit.OK)


def test_the_last_step_is_told_even_if_no_report_named_it() -> None:
    job = Job({**PS, "evaluator": 1})
    job.run()
    job.report("chief:0", status={"step": 90})
    job.core.end(Exit.OK, "", 100)
    assert job.report("evaluator:0").step == 100


def test_the_evaluator_is_never_required() -> None:
    job = Job({**PS, "evaluator": 1})
    job.run()
    assert status_view.task_rows(job.core, job.now)["evaluator:0"].state == "absent"
    assert job.report("evaluator:0").phase == "running"
    job.wait(LOST + 1, "evaluator:0")
    assert job.core.phase == "running"
    assert status_view.task_rows(job.core, job.now)["evaluator:0"].state == "lost"


def test_a_thousand_tasks_form_in_well_under_a_second() -> None:
    job = Job({"worker": 1000})
    begun = time.process_time()
    job.arrive()
    assert job.core.phase == "running"
    assert time.process_time() - begun < 0.8


# Strangers. ---------------------------------------------------------------------------------------

STRANGERS: list[tuple[str, dict[str, Any], str]] = [
    (
        "worker:1",
        {"cluster": "0ther"},
        r"worker:1 was given another cluster than the chief; all tasks need the same 'cluster' in TF_CONFIG",
    ),
    ("worker:1", {"spec": "0ther"}, r"worker:1 was given another job spec than the chief; give all"),
    ("worker:1", {"workload": "0ther"}, r"worker:1 has another workload file \(mnist\) than the chief; give all tasks"),
    ("worker:1", {"versions": {**VERSIONS, "trainer": "9.9"}}, r"has trainer 9\.9, the chief 0\.1\.0"),
    ("worker:1", {"versions": {**VERSIONS, "tensorflow": "2.20.0"}}, r"has tensorflow 2\.20\.0, the chief 2\.21\.0"),
    ("worker:1", {"versions": {}}, r"worker:1 has tensorflow None, the chief 2\.21\.0; use one image"),
    ("worker:9", {}, r"worker:9 is not in the chief's cluster \(worker:0, worker:1, worker:2\); compare"),
]


@pytest.mark.parametrize(("name", "changes", "line"), STRANGERS)
def test_a_stranger_is_told_at_once_and_in_one_line(name: str, changes: dict[str, Any], line: str) -> None:
    job = Job()
    job.arrive("worker:0")
    reply = job.report(name, **changes)
    assert (reply.phase, reply.code) == ("failed", Exit.MISMATCH)
    assert re.search(line, reply.message)
    assert reply.message.isprintable()
    assert job.core.phase == "forming", "the job waits for the right one"


@pytest.mark.parametrize("changes", [changes for name, changes, _ in STRANGERS if name == "worker:1"])
def test_a_stranger_ends_the_job_only_at_the_deadline(changes: dict[str, Any]) -> None:
    job = Job()
    job.arrive("worker:0", "worker:2")
    difference = job.report("worker:1", **changes).message
    for _ in range(int(RENDEZVOUS)):
        job.now += 1
        job.arrive("worker:0", "worker:2")
    assert job.core.phase == "forming"
    job.now += 1
    assert job.report("worker:0").code is Exit.MISMATCH
    assert job.core.message.endswith(f": worker:1: {difference}")


def test_a_stranger_that_nobody_waits_for_harms_nothing() -> None:
    job = Job()
    job.arrive("worker:0")
    job.report("worker:9")
    job.arrive("worker:2")
    job.wait(RENDEZVOUS + 1, "worker:1")
    assert job.outcome == ("failed", Exit.MISSING)
    other = Job()
    other.arrive("worker:0")
    other.report("worker:9")
    other.run()


def test_a_stranger_that_comes_back_right_is_a_stranger_no_more() -> None:
    job = Job()
    job.arrive("worker:0")
    job.report("worker:1", spec="0ther")
    job.report("worker:1", spec="spec", incarnation="second")
    job.wait(RENDEZVOUS + 1, "worker:1", "worker:2")
    assert job.outcome == ("failed", Exit.MISSING)
    assert "worker:1: silent for 61 s" in job.core.message


def test_a_task_that_is_replaced_by_a_stranger_is_missed_with_the_difference() -> None:
    job = Job()
    job.run()
    job.report("worker:1", incarnation="second", generation=0, versions={"tensorflow": "2.20.0"})
    assert job.outcome == ("running", Exit.OK)
    job.wait(LOST + 1, "worker:1")
    assert job.outcome == ("forming", Exit.OK)
    job.wait(RENDEZVOUS + 1, "worker:1")
    assert job.outcome == ("failed", Exit.MISMATCH)
    assert "worker:1 has tensorflow 2.20.0, the chief 2.21.0" in job.core.message


# Losses. ------------------------------------------------------------------------------------------


def lose_child(job: Job, name: str) -> None:
    job.report(name, generation=0, lost=job.core.generation, reason="killed by SIGKILL")


def restart_supervisor(job: Job, name: str) -> None:
    job.restart(name)


def fall_silent(job: Job, name: str) -> None:
    job.wait(LOST + 1, name)


LOSSES = [
    (lose_child, "killed by SIGKILL"),
    (restart_supervisor, "its supervisor was restarted"),
    (fall_silent, "silent for 10 s"),
]
WHO_RE_FORMS = [
    *((None, name, True) for name in ("worker:0", "worker:1", "worker:2")),
    *((PS, name, True) for name in ("chief:0", "ps:0")),
    *((PS, name, False) for name in ("worker:0", "worker:1")),
]


@pytest.mark.parametrize(("lose", "reason"), LOSSES)
@pytest.mark.parametrize(("tasks", "name", "re_forms"), WHO_RE_FORMS)
def test_whose_loss_makes_a_new_generation(
    lose: Any, reason: str, tasks: dict[str, int] | None, name: str, re_forms: bool
) -> None:
    job = Job(tasks)
    job.run()
    job.checkpoint = 500
    lose(job, name)
    if not re_forms:
        assert (job.core.phase, job.core.generation) == ("running", 1)
        assert job.told[-1] == f"{name} lost ({reason}); the others go on"
        return
    assert job.report(job.chief).phase == "forming"
    assert job.told[-1] == f"{name} lost ({reason}), re-forming"
    job.stop_children()
    job.reach(name)
    assert job.report(job.chief) == Reply("running", 2, 500, version=4)


def test_a_lost_task_has_the_whole_deadline_to_come_back() -> None:
    job = Job()
    job.run()
    job.wait(3 * RENDEZVOUS)
    lose_child(job, "worker:1")
    job.report("worker:0", generation=0)
    job.wait(RENDEZVOUS)
    assert job.core.phase == "forming"
    job.wait(1)
    assert job.outcome == ("failed", Exit.MISSING)
    assert job.core.message.endswith(": worker:2: its child of the last generation still runs")


def test_a_silent_ps_worker_is_told_once_until_it_speaks_again() -> None:
    job = Job(PS)
    job.run()
    for _ in range(2):
        job.wait(5 * LOST, "worker:1")
        job.wait(1)
    assert job.told.count("worker:1 lost (silent for 10 s); the others go on") == 2


def test_the_silent_are_known_until_they_speak_again() -> None:
    job = Job(PS)
    job.run()
    assert job.core.silent() == []
    job.wait(LOST + 1, "worker:1")
    assert job.core.silent() == ["worker:1"]
    job.report("worker:1")
    assert job.core.silent() == []


def test_the_loss_of_an_earlier_generation_is_old_news() -> None:
    job = Job()
    job.run()
    lose_child(job, "worker:1")
    job.stop_children()
    assert job.core.generation == 2
    assert job.report("worker:1", lost=1).phase == "running"


def test_a_chief_that_was_stopped_lets_the_others_wait_for_the_next() -> None:
    job = Job()
    job.run()
    job.core.generation_over(job.now)
    assert job.report("worker:1").phase == "forming"
    job.stop_children()
    job.core.end(Exit.OK, "")
    job.core.generation_over(job.now)
    assert job.core.phase == "done"


# Progress. ----------------------------------------------------------------------------------------


def step(job: Job, number: int, **status: Any) -> None:
    job.report(job.chief, status={"step": number, **status})


def test_no_new_step_for_too_long_makes_a_new_generation() -> None:
    job = Job()
    job.run()
    job.wait(PROGRESS - 1)
    step(job, 10)
    job.wait(PROGRESS)
    assert job.outcome == ("running", Exit.OK)
    job.wait(1)
    assert job.outcome == ("forming", Exit.OK)
    assert job.told[-1] == "no new step for 300 s (deadlines.progress)"


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
    job.report("worker:1", status={"step": 99})
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
    job.wait(1)
    assert job.outcome == ("failed", Exit.EVALUATION)
    assert job.report("worker:2").message == (
        "worker:0: the final evaluation and export took longer than 20 s (deadlines.evaluation); the trained "
        "checkpoint is kept: mend data('test') or evaluate(), or raise the deadline, and the same command evaluates it"
    )


def test_an_evaluation_that_begins_anew_has_the_whole_deadline_again() -> None:
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
    job.wait(1)
    assert job.core.code is Exit.EVALUATION


def fail_once_more(job: Job) -> None:
    lose_child(job, "worker:1")
    job.stop_children()
    for name in job.core.required:
        job.report(name, generation=job.core.generation, lost=0, status={})


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
    assert job.core.message == f"{allowed + 1} generations without a new step (max_restarts); last: {last}"


@pytest.mark.parametrize("allowed", [0, 2])
@pytest.mark.parametrize("tasks", [None, {"chief": 1, "worker": 1}])
def test_steps_up_to_the_highest_of_all_generations_are_no_progress(tasks: dict[str, int] | None, allowed: int) -> None:
    job = Job(tasks, max_restarts=allowed)
    job.run()
    name = job.core.required[-1]
    step(job, 188)  # it crashes there each time, and no checkpoint was written before
    for _ in range(allowed + 1):
        assert job.core.phase == "running"
        job.report(name, generation=0, lost=job.core.generation, reason="exit code 1")
        job.stop_children()
        for other in job.core.required:
            job.report(other, generation=job.core.generation, lost=0, status={})
        step(job, 100)
        step(job, 188)
    job.report(name, generation=0, lost=job.core.generation, reason="exit code 1")
    job.stop_children()
    assert job.outcome == ("failed", Exit.GAVE_UP)
    assert job.core.message.endswith(f"(max_restarts); last: {name} lost (exit code 1)")


def test_a_restarted_chief_remembers_the_highest_step_and_the_generations_without_one() -> None:
    job = Job({"worker": 1}, max_restarts=2)
    job.core.progress.step, job.core.progress.generations_without_progress = 188, 1
    for _ in range(2):
        job.run()
        step(job, 188)
        lose_child(job, "worker:0")
        job.stop_children()
    assert job.outcome == ("failed", Exit.GAVE_UP)


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


def test_a_ps_worker_that_is_lost_again_and_again_without_a_step_ends_the_job() -> None:
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


def test_a_ps_worker_that_makes_steps_may_be_lost_for_ever() -> None:
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
        job.report("worker:1", restarts=times, reason="the chief heard nothing for 11 s")
        assert job.core.code is (Exit.OK if times < 2 else Exit.GAVE_UP)
        step(job, 10 * times, workers={"worker:0": {"step": 10 * times}})


def blame(job: Job, name: str) -> None:
    """Its child ends with an error that a lost peer causes, or a defect of its own."""
    job.report(
        name, generation=0, lost=job.core.generation, reason="InternalError: x", blames_peer=True,
        failure=(2, "gen.py:8: InternalError: x"),
    )  # fmt: skip


def clear(job: Job) -> None:
    job.stop_children()
    for name in job.core.required:
        job.report(name, generation=job.core.generation, lost=0, reason="", blames_peer=False, failure=None)


def test_an_error_that_blames_a_peer_though_none_is_lost_is_the_tasks_own_when_it_comes_back() -> None:
    job = Job()
    job.run()
    blame(job, "worker:1")
    job.report("worker:2", generation=0, lost=1, reason="UnavailableError: x", blames_peer=True)  # as a consequence
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
def test_what_is_lost_after_the_chief_was_told_to_stop_is_no_loss(tasks: dict[str, int] | None) -> None:
    job = Job(tasks)
    job.run()
    told = list(job.told)
    job.core.stopping = True
    for name in job.core.required[1:]:
        job.report(name, generation=0, leaving=True)
        lose_child(job, name)
    job.wait(2 * LOST, *job.core.required[1:])
    assert job.told == told
    assert job.outcome[1] == Exit.OK


def test_a_task_that_is_told_to_stop_before_it_has_anything_to_save_is_no_lost_one() -> None:
    job = Job()
    job.run()
    job.report("worker:1", generation=0, leaving=True)
    assert job.core.phase == "forming"
    assert job.told[-1] == "worker:1 was told to stop, re-forming"


def test_a_task_that_stopped_as_all_agreed_leaves_the_chief_to_save() -> None:
    job = Job()
    job.run()
    step(job, 100)
    job.report("worker:1", generation=0, leaving=True, status={"stopped_well": True})
    assert job.outcome == ("running", Exit.OK)


def test_a_step_of_each_generation_keeps_it_going_for_ever() -> None:
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


# The end. -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [None, PS])
@pytest.mark.parametrize("code", [Exit.USER, Exit.DEVICES, Exit.DIVERGED, Exit.BUG])
def test_the_failure_of_a_task_ends_the_job_for_all(tasks: dict[str, int] | None, code: Exit) -> None:
    job = Job(tasks)
    job.run()
    job.report("worker:1", failure=(int(code), "what happened"))
    for name in job.core.required:
        reply = job.report(name)
        assert (reply.phase, reply.code, reply.message) == ("failed", code, "worker:1: what happened")


def test_the_first_verdict_stands() -> None:
    job = Job()
    job.run()
    job.report("worker:1", failure=(13, "the loss is nan"))
    version = job.core.version
    job.report("worker:2", failure=(2, "another"))
    lose_child(job, "worker:0")
    job.core.end(Exit.OK, "")
    job.wait(RENDEZVOUS + PROGRESS)
    assert job.outcome == ("failed", Exit.DIVERGED)
    assert (job.core.message, job.core.version) == ("worker:1: the loss is nan", version)


def test_all_are_told_once_each_has_asked_since_the_end() -> None:
    job = Job()
    job.run()
    job.core.end(Exit.OK, "")
    for name in job.core.required:
        assert job.core.unnotified(job.now)
        assert job.report(name).phase == "done"
    assert not job.core.unnotified(job.now)


@pytest.mark.parametrize("code", [Exit.OK, Exit.USER])
def test_if_the_job_ends_before_all_came_those_have_to_be_told_too(code: Exit) -> None:
    job = Job()
    job.core.end(code, "already complete, or refused")  # by the chief, which needs no report for it
    for name in ("worker:2", "worker:1"):
        assert job.core.unnotified(job.now)
        assert job.report(name).code == code
    assert not job.core.unnotified(job.now)


def test_nobody_waits_any_longer_for_those_who_did_not_come_in_time() -> None:
    job = Job()
    job.arrive("worker:0", "worker:1")
    job.wait(RENDEZVOUS + 1)
    job.arrive("worker:0", "worker:1")
    assert job.outcome == ("failed", Exit.MISSING)
    assert not job.core.unnotified(job.now)


@pytest.mark.parametrize("code", [Exit.OK, Exit.DIVERGED])
@pytest.mark.parametrize("leaving", [False, True], ids=["lost", "told to stop"])
def test_who_may_come_back_is_expected_as_long_as_it_would_wait_for_its_chief(code: Exit, leaving: bool) -> None:
    job = Job()
    job.run()
    job.report("worker:2", leaving=leaving)
    job.now += 2 * LOST
    job.core.end(code, "")
    job.arrive("worker:0", "worker:1")
    assert job.core.unnotified(job.now) == ["worker:2"]
    job.now += job.spec.deadlines.chief_lost
    assert not job.core.unnotified(job.now)


@pytest.mark.parametrize("code", [Exit.OK, Exit.DIVERGED])
def test_who_comes_back_after_the_end_is_told(code: Exit) -> None:
    job = Job()
    job.run()
    job.core.end(code, "why")
    job.now += 2 * LOST
    job.arrive("worker:0", "worker:1")
    job.restart("worker:2")
    assert not job.core.unnotified(job.now)
    assert (job.report("worker:2").code, job.report("worker:2").message) == (code, "why")


def test_who_did_not_come_yet_is_expected_from_the_start_of_the_chief() -> None:
    job = Job()
    job.core.end(Exit.USER, "refused")
    assert job.core.unnotified(job.now) == ["worker:1", "worker:2"]
    job.now += job.spec.deadlines.chief_lost + 1
    assert not job.core.unnotified(job.now)


def test_a_chief_that_is_told_to_stop_waits_for_nobody_who_is_not_there() -> None:
    job = Job()
    job.run()
    job.now += 2 * LOST
    job.arrive("worker:0")
    job.core.end(Exit.DIVERGED, "x")
    job.report("worker:1", leaving=True)
    job.core.members["worker:0"].notified = True
    assert not job.core.unnotified(job.now, leaving=True)


def test_a_job_that_is_stopped_waits_for_those_who_stay_and_for_nobody_else() -> None:
    job = Job()
    job.run()
    job.report("worker:2", leaving=True)
    job.core.end(Exit.STOPPED, "stopped")
    assert job.core.unnotified(job.now) == ["worker:0", "worker:1"]
    job.now += LOST + 1
    assert not job.core.unnotified(job.now)


# What it shows. -----------------------------------------------------------------------------------


def test_the_version_goes_up_with_each_change_and_only_then() -> None:
    job = Job()
    versions = [job.core.version]
    job.run()
    versions.append(job.core.version)
    job.wait(5)
    assert job.core.version == versions[-1]
    lose_child(job, "worker:1")
    versions.append(job.core.version)
    job.stop_children()
    versions.append(job.core.version)
    job.core.end(Exit.OK, "")
    versions.append(job.core.version)
    assert versions == sorted(set(versions))
    assert job.report("worker:0").version == versions[-1]


def test_status_tells_the_state_of_every_task() -> None:
    job = Job({**PS, "evaluator": 1})

    def states() -> list[str]:
        return [task.state for task in status_view.task_rows(job.core, job.now).values()]

    assert states() == ["absent"] * 5
    job.arrive("chief:0", "ps:0")
    assert states() == ["waiting", "absent", "absent", "waiting", "absent"]
    job.run()
    job.wait(LOST + 1, "worker:1")
    assert states() == ["running", "running", "lost", "running", "absent"]
    job.report("worker:0", restarts=2, standby=True, status={"step": 7})
    assert status_view.task_rows(job.core, job.now)["worker:0"] == TaskRow(
        state="running", generation=1, restarts=2, standby=True, figures={"step": 7}
    )
    job.core.end(Exit.OK, "")
    assert states() == ["done", "done", "done", "done", "absent"]


def test_start_lines_are_kept_after_their_task_went() -> None:
    job = Job()
    job.run()
    job.report("worker:1", status={"line": "task=worker:1 ..."})
    job.report("worker:1", status={})
    assert job.core.start_lines == {"worker:1": "task=worker:1 ..."}


def test_only_the_newest_events_are_kept() -> None:
    job = Job()
    for number in range(EVENTS_KEPT + 3):
        job.core.note(str(number))
    assert job.told == [str(number) for number in range(3, EVENTS_KEPT + 3)]
