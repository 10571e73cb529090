"""For any reports in any order, a job ends once, and runs only with all required tasks."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.protocol.reports import Reply, Report
from trainer.supervisor.rendezvous.state_machine import Rendezvous
from trainer.supervisor.views import snapshot

LOST = 10.0
CLUSTERS: list[dict[str, int]] = [{"worker": 1}, {"worker": 3}, {"worker": 2, "ps": 1, "evaluator": 1}]
STRANGE: list[tuple[str, Any]] = [
    ("cluster", "x"),
    ("spec", "x"),
    ("workload", "x"),
    ("versions", {}),
    ("task", "worker:9"),
]
outcomes: Counter[str] = Counter()


@dataclass
class Truth:
    """A task as it is, whatever the chief makes of it."""

    report: Report
    at: float | None = None
    reachable: bool = False

    def ready(self, now: float) -> bool:
        there = self.at is not None and now - self.at <= LOST
        return there and self.reachable and not self.report.generation and not self.report.leaving


class Job:
    """What may happen to a job. Each action takes a number, and picks a task or whatever it needs by it."""

    def __init__(self, tasks: dict[str, int], max_restarts: int) -> None:
        strategy = "parameter_server" if "ps" in tasks else "multi_worker_mirrored"
        deadlines = {"start": 50, "rejoin": 40, "task_lost": LOST, "progress": 60}
        common = {"name": "j", "strategy": strategy, "deadlines": deadlines}
        spec = build({**common, "tasks": tasks, "max_restarts": max_restarts})
        made = tasks_of(spec)
        self.now, self.step, self.mirrored = 0.0, 0, "ps" not in tasks
        self.core = Rendezvous(spec, made[0], 3, self.now, lambda: self.step // 100 * 100)
        self.tasks = [Truth(Report(task.name, "0", task.digest, "s", "w", {"tensorflow": "1"})) for task in made]
        self.required = [task for task in self.tasks if task.report.task in self.core.tasks.required]
        self.report(0)

    def watch(self, act: Callable[[], Any], *, looks_at_the_clock: bool = True) -> None:
        """Does it, and compares the chief's picture with the one before and with the truth."""
        before = self.core.reply()
        act()
        after, ready = self.core.reply(), all(task.ready(self.now) for task in self.required)
        same = replace(after, version=before.version, step=before.step) == before
        assert (after.version > before.version) != same, "a change is news, and only a change"
        if before.phase in ("done", "failed"):
            assert same, "the first verdict stands"
        assert after.generation in (before.generation, before.generation + 1)
        if after.generation > before.generation:
            outcomes["formed"] += 1
            assert ready
        elif after.phase == "running":
            assert before.phase == "running"
        elif after.phase == "forming" and looks_at_the_clock:
            assert not ready
            assert self.core.tasks.waiting_for(self.now)
        if after.phase != before.phase:
            outcomes[after.phase if after.phase != "failed" else Exit(after.code).name] += 1
        assert (after.code == Exit.OK) == (after.phase != "failed")

    def some(self, number: int) -> Truth:
        return self.tasks[number % len(self.tasks)]

    def send(self, task: Truth, **changes: Any) -> Reply:
        task.report, task.at = replace(task.report, **changes), self.now
        self.watch(lambda: self.core.report(task.report, self.now))
        return self.core.reply()

    def dial(self, number: int, problem: str | None = None) -> None:
        task = self.some(number)
        if task.at is not None and task in self.required:
            task.reachable = problem is None
            self.watch(lambda: self.core.reachable(task.report.task, task.report.incarnation, problem, self.now))

    # Actions. -------------------------------------------------------------------------------------

    def report(self, number: int) -> None:
        self.send(self.some(number))

    def all_but_perhaps_one_follow(self, number: int) -> None:
        numbers = [n for n in range(len(self.tasks)) if n != number]
        for n in numbers:
            self.report(n)
            self.dial(n)
        for _ in range(2):  # children of the last generation are killed, then those of the next are started
            for n in numbers:
                reply = self.send(self.some(n))
                self.send(self.some(n), generation=reply.generation if reply.phase == "running" else 0, ended_early=0)

    def cannot_be_dialled(self, number: int) -> None:
        self.dial(number, "refused")

    def lose_child(self, number: int) -> None:
        task, current = self.some(number), self.core.generation
        if generation := task.report.generation:
            reply = self.send(task, generation=0, ended_early=generation, reason="killed")
            if self.mirrored and generation == current:
                assert (reply.phase, reply.generation) != ("running", current)

    def restart_supervisor(self, number: int) -> None:
        task, current = self.some(number), self.core.generation
        if task.report.leaving and task.report.generation:
            return  # the next one waits until this one's child has ended: test_fencing.py
        there, task.reachable = task.at is not None, False
        incarnation = str(int(task.report.incarnation) + 1)
        reply = self.send(task, incarnation=incarnation, generation=0, ended_early=0, leaving=False, status={})
        if self.mirrored and there:
            assert (reply.phase, reply.generation) != ("running", current)

    def leave(self, number: int) -> None:
        self.send(self.some(number), leaving=True)

    def advance(self, number: int) -> None:
        if self.tasks[0].report.generation:
            self.step += 10 * number
            self.send(self.tasks[0], status={"step": self.step, "finishing": number == 7})

    def wait(self, number: int) -> None:
        self.now += (1, 1, 1, 5, 5, LOST, 11, 31)[number]
        if number % 2:
            self.watch(lambda: self.core.tick(self.now))

    def meet_a_stranger(self, number: int) -> None:
        before = self.core.reply()
        changes: dict[str, Any] = dict([STRANGE[number % len(STRANGE)]])
        report = replace(self.some(number).report, incarnation="?", failure=(2, "x"), **changes)
        assert self.core.report(report, self.now).code == Exit.MISMATCH
        assert self.core.reply() == before, "a stranger changes nothing"

    def fail_or_finish(self, number: int) -> None:
        if number == 7 and self.core.generation % 2:
            self.send(self.tasks[-1], failure=(int(Exit.DIVERGED), "x"))
        elif number == 7:
            self.watch(lambda: self.core.end(Exit.OK, ""))

    def stop_this_generation(self, number: int) -> None:
        if number > 4:
            self.watch(lambda: self.core.generation_over(self.now), looks_at_the_clock=False)


ACTIONS = [
    *[Job.all_but_perhaps_one_follow, Job.report, Job.wait, Job.advance, Job.lose_child] * 2,
    *[Job.cannot_be_dialled, Job.restart_supervisor, Job.leave, Job.meet_a_stranger, Job.fail_or_finish],
    Job.stop_this_generation,
]


def test_any_sequence_keeps_the_rules() -> None:
    for seed in range(500):
        dice = random.Random(seed)
        job, done = Job(dice.choice(CLUSTERS), dice.choice([0, 1, 100, 100])), []
        for _ in range(60):
            act, number = dice.choice(ACTIONS), dice.randrange(8)
            done.append(f"{act.__name__}({number})")
            try:
                act(job, number)
            except BaseException:
                print(f"seed {seed}, {list(snapshot.task_rows(job.core, job.now))}:", *done, sep="\n")
                raise
        assert set(snapshot.task_rows(job.core, job.now)) == {task.report.task for task in job.tasks}
    assert min(outcomes[what] for what in ("done", "MISSING", "MISMATCH", "DIVERGED", "GAVE_UP")) >= 10, outcomes
    assert outcomes["formed"] > 500, "too few clusters formed for the test to mean anything"
