"""Whatever tasks report, and in whatever order: a job ends once, and runs only with all it needs."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.job.tf_config import tasks_of
from trainer.runtime.rendezvous import Rendezvous, Reply, Report

LOST = 10.0
CLUSTERS: list[dict[str, int]] = [{"worker": 1}, {"worker": 3}, {"worker": 2, "ps": 1, "evaluator": 1}]
task_number = st.integers(0, 3)
outcomes: Counter[str] = Counter()
"""What the sequences led to: a test that never got anywhere says nothing."""


@dataclass
class Truth:
    """A task as it is, whatever the chief makes of it."""

    report: Report
    at: float | None = None
    reachable: bool = False

    def ready(self, now: float) -> bool:
        there = self.at is not None and now - self.at <= LOST
        return there and self.reachable and not self.report.generation and not self.report.leaving


class AnyJob(RuleBasedStateMachine):
    @initialize(tasks=st.sampled_from(CLUSTERS), max_restarts=st.sampled_from([1, 100, 100, 100]), first=st.integers(0, 3))
    def begin(self, tasks: dict[str, int], max_restarts: int, first: int) -> None:
        strategy = "parameter_server" if "ps" in tasks else "multi_worker_mirrored"
        deadlines = {"rendezvous": 50, "task_lost": LOST, "progress": 60}
        common = {"name": "j", "strategy": strategy, "deadlines": deadlines}
        spec = build({**common, "tasks": tasks, "max_restarts": max_restarts})
        made = tasks_of(spec)
        self.now, self.step, self.first, self.mirrored = 0.0, 0, first, "ps" not in tasks
        self.core = Rendezvous(spec, made[0], first, self.now, lambda: self.step // 100 * 100)
        self.tasks = [Truth(Report(task.name, "0", task.digest, "s", {"tensorflow": "1"})) for task in made]
        self.required = [task for task in self.tasks if task.report.task in self.core.required]
        self.tell(self.tasks[0])

    def watch(self, act: Callable[[], Any], *, looks_at_the_clock: bool = True) -> None:
        """Does it, and compares the chief's picture with the one before and with the truth."""
        before = self.core.reply()
        act()
        after, ready = self.core.reply(), all(task.ready(self.now) for task in self.required)
        assert after.generation >= before.generation
        assert (after.version > before.version) == (replace(after, version=0, step=0) != replace(before, version=0, step=0))
        if before.phase in ("done", "failed"):
            assert replace(after, step=before.step) == before, "the first verdict stands"
        if after.generation > before.generation:
            outcomes["formed"] += 1
            assert after.generation == before.generation + 1
            assert ready
        elif after.phase == "running":
            assert before.phase == "running"
        elif after.phase == "forming" and looks_at_the_clock:
            assert not ready
            assert self.core.waiting_for(self.now)
        if after.phase != before.phase:
            outcomes[after.phase] += 1
        assert (after.code == Exit.OK) == (after.phase != "failed")
        assert set(self.core.status(self.now)) == {task.report.task for task in self.tasks}

    def tell(self, task: Truth, **changes: Any) -> Reply:
        task.report, task.at = replace(task.report, **changes), self.now
        self.watch(lambda: self.core.report(task.report, self.now))
        return self.core.reply()

    def dial(self, task: Truth, problem: str | None) -> None:
        if task.at is not None and task in self.required:
            task.reachable = problem is None
            self.watch(lambda: self.core.reachable(task.report.task, task.report.incarnation, problem, self.now))

    def some(self, number: int) -> Truth:
        return self.tasks[number % len(self.tasks)]

    @rule(number=task_number)
    def report(self, number: int) -> None:
        self.tell(self.some(number))

    @rule(leave_out=st.none() | task_number)
    def all_do_what_they_are_told(self, leave_out: int | None) -> None:
        others = [task for task in self.tasks if leave_out is None or task is not self.some(leave_out)]
        for task in others:
            self.tell(task)
            self.dial(task, None)
        for _ in range(2):  # children of the last generation are killed, then those of the next are started
            for task in others:
                reply = self.tell(task)
                self.tell(task, generation=reply.generation if reply.phase == "running" else 0, lost=0)

    @rule(number=task_number, problem=st.sampled_from([None, "refused"]))
    def dial_one(self, number: int, problem: str | None) -> None:
        self.dial(self.some(number), problem)

    @rule(number=task_number)
    def lose_child(self, number: int) -> None:
        task, current = self.some(number), self.core.generation
        if generation := task.report.generation:
            reply = self.tell(task, generation=0, lost=generation, reason="killed")
            if self.mirrored and generation == current:
                assert (reply.phase, reply.generation) != ("running", current)

    @rule(number=task_number)
    def restart_supervisor(self, number: int) -> None:
        task, current = self.some(number), self.core.generation
        there, task.reachable = task.at is not None, False
        incarnation = str(int(task.report.incarnation) + 1)
        reply = self.tell(task, incarnation=incarnation, generation=0, lost=0, leaving=False, status={})
        if self.mirrored and there:
            assert (reply.phase, reply.generation) != ("running", current)

    @rule(number=task_number)
    def leave(self, number: int) -> None:
        self.tell(self.some(number), leaving=True)

    @rule(steps=st.sampled_from([10, 100]), finishing=st.sampled_from([False, False, True]))
    def advance(self, steps: int, finishing: bool) -> None:
        if self.tasks[0].report.generation:
            self.step += steps
            self.tell(self.tasks[0], status={"step": self.step, "finishing": finishing})

    @rule(seconds=st.sampled_from([1.0, 5.0, LOST, 11.0, 31.0]), ticks=st.booleans())
    def wait(self, seconds: float, ticks: bool) -> None:
        self.now += seconds
        if ticks:
            self.watch(lambda: self.core.tick(self.now))

    @rule(number=st.integers(0, 9), changes=st.sampled_from([{"cluster": "x"}, {"spec": "x"}, {"versions": {}}]))
    def meet_a_stranger(self, number: int, changes: dict[str, Any]) -> None:
        name = self.some(number).report.task if number else "worker:9"
        report = replace(self.some(number).report, task=name, incarnation="?", failure=(2, "x"), **changes)
        reply = self.core.reply()
        assert self.core.report(report, self.now).code == Exit.MISMATCH
        assert self.core.reply() == reply, "a stranger changes nothing"

    @precondition(lambda self: self.core.generation > self.first + 1)
    @rule(number=task_number, code=st.sampled_from([Exit.USER, Exit.DIVERGED]))
    def fail(self, number: int, code: Exit) -> None:
        assert self.tell(self.some(number), failure=(int(code), "x")).phase in ("done", "failed")

    @precondition(lambda self: self.core.generation > self.first + 1)
    @rule()
    def finish(self) -> None:
        self.watch(lambda: self.core.end(Exit.OK, ""))

    @rule()
    def stop_this_generation(self) -> None:
        self.watch(lambda: self.core.generation_over(self.now), looks_at_the_clock=False)


def test_any_sequence_keeps_the_rules() -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        AnyJob,
        settings=settings(
            max_examples=80, stateful_step_count=40, deadline=None, print_blob=True, suppress_health_check=checks
        ),
    )
    print(outcomes)
    assert min(outcomes[phase] for phase in ("formed", "forming", "done", "failed")) > 10, outcomes
