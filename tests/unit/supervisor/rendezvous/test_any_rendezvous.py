"""For any reports in any order, a job ends once, and runs only with all required tasks. A model that knows only what
the tasks have sent, and the clock, predicts each fact that the chief notes, but for notes.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.protocol.child import ChildStatus
from trainer.protocol.facts import Back, Cause, Consequence, Ended, Fact, Formed, Loss, Lost, Note, Stalled
from trainer.protocol.reports import Reply, Report
from trainer.supervisor.rendezvous import gathering
from trainer.supervisor.rendezvous.state_machine import Rendezvous
from trainer.supervisor.views import snapshot

LOST, PROGRESS = 10.0, 60.0
KILLED = Loss(Cause.KILLED, signal="SIGKILL")
DIVERGED = Loss(Cause.ERROR, error="x", code=int(Exit.DIVERGED))
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


class Model:
    """What the chief has to note of what it is told. Each method is called before the chief is told the same."""

    def __init__(self, required: list[str], chief: str, spec: JobSpec) -> None:
        self.required, self.chief, self.deadlines = required, chief, spec.deadlines
        self.last: Lost | Stalled | None = None
        self.known: dict[str, Report] = {}
        """The last report of each task."""
        self.heard: dict[str, float] = {}
        self.silent: set[str] = set()
        self.away: dict[str, float] = {}
        self.progress, self.since = (0, False), 0.0
        """The chief's step, and whether its child finishes, and when one of them changed."""
        self.asked: float | None = None
        """When the chief asked for stacks, which nobody answers."""

    def then(self, name: str) -> Consequence:
        if name.startswith("evaluator"):
            return "not_awaited"
        return "others_continue" if self.chief == "chief:0" and name.startswith("worker") else "re_forming"

    def lose(self, name: str, loss: Loss, now: float) -> Lost:
        self.away.setdefault(name, now)
        self.last = Lost(name, loss, self.then(name))
        return self.last

    def report(self, report: Report, now: float, running: int) -> list[Fact]:
        """
        Args:
            running: the generation that runs; 0 if none does.
        """
        name, found = report.task, list[Fact]()
        before = self.known.get(name)
        alone, runs = self.then(name) != "re_forming", bool(running) and report.generation == running
        if before and before.incarnation != report.incarnation and running and not runs:
            found.append(self.lose(name, Loss(Cause.SUPERVISOR_RESTARTED), now))
        if running and alone and runs and name in self.away:
            found.append(Back(name, now - self.away.pop(name)))
        elif running and alone and before and before.generation == running and not runs:
            self.away.setdefault(name, now)
        running = running if alone or not found else 0
        ends = bool(report.loss and report.loss.ends_the_job) and self.then(name) != "not_awaited"
        if running and not ends and report.ended_early == running:
            found.append(self.lose(name, report.loss or Loss(Cause.EXITED), now))
        elif running and not ends and not alone and report.leaving and not runs:
            found.append(Lost(name, Loss(Cause.ASKED_TO_STOP), "re_forming"))
        if name == self.chief and self.progress != (new := (report.status.step or 0, report.status.finishing)):
            self.progress, self.since = new, now
        self.known[name], self.heard[name] = report, now
        self.silent.discard(name)
        return found

    def tick(self, now: float, running: int) -> list[Fact]:
        found: list[Fact] = []
        if self.asked is not None and now - self.asked >= gathering.ANSWER_SECONDS:
            self.asked = None
            if running and self.overdue(now):
                running = 0
                if not self.progress[1]:
                    self.last = Stalled(Loss(Cause.NO_NEW_STEP, seconds=PROGRESS, setting="deadlines.progress"))
                    found.append(self.last)
        if running:
            new = [name for name in self.required if name not in self.silent and now - self.heard[name] > LOST]
            self.silent |= set(new)
            found += [self.lose(name, Loss(Cause.SILENT, seconds=LOST), now) for name in new]
            if self.asked is None and self.overdue(now):
                self.asked = now
        return found

    def overdue(self, now: float) -> bool:
        return now - self.since > (self.deadlines.evaluation if self.progress[1] else PROGRESS)

    def formed(self, now: float) -> None:
        self.since = now
        self.away.clear()

    def why_it_ended(self, reply: Reply) -> tuple[str | None, Loss | None]:
        """The task that the job ended for, and its loss."""
        if reply.code == Exit.DIVERGED:
            return next((name, each.loss) for name, each in self.known.items() if each.loss == DIVERGED)
        if reply.code == Exit.EVALUATION:
            return self.chief, None
        if reply.code == Exit.GAVE_UP and self.last:
            return self.last.task if isinstance(self.last, Lost) else None, self.last.loss
        return None, None


class Job:
    """What may happen to a job. Each action takes a number, and picks a task or whatever it needs by it."""

    def __init__(self, tasks: dict[str, int], max_restarts: int) -> None:
        strategy = "parameter_server" if "ps" in tasks else "multi_worker_mirrored"
        deadlines = {"start": 50, "rejoin": 40, "task_lost": LOST, "progress": PROGRESS}
        common = {"name": "j", "strategy": strategy, "deadlines": deadlines}
        spec = build({**common, "tasks": tasks, "max_restarts": max_restarts})
        made = tasks_of(spec)
        self.now, self.step, self.mirrored = 0.0, 0, "ps" not in tasks
        self.core = Rendezvous(spec, made[0], 3, self.now, lambda: self.step // 100 * 100)
        self.tasks = [Truth(Report(task.name, "0", task.digest, "s", "w", {"tensorflow": "1"})) for task in made]
        self.model = Model(self.core.tasks.required, made[0].name, spec)
        self.required = [task for task in self.tasks if task.report.task in self.core.tasks.required]
        self.report(0)

    @property
    def running(self) -> int:
        return self.core.generation if self.core.phase == "running" else 0

    def watch(self, act: Callable[[], Any], expected: Sequence[Fact] = (), *, looks_at_the_clock: bool = True) -> None:
        """Does it, and compares the chief's picture with the one before and with the truth."""
        before, noted = self.core.reply(), self.core.chronicle.noted
        act()
        self.check_facts(before, [entry.fact for entry in self.core.chronicle.since(noted)], expected)
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

    def check_facts(self, before: Reply, found: list[Fact], expected: Sequence[Fact]) -> None:
        after, facts = self.core.reply(), list(expected)
        if after.generation > before.generation:
            self.model.formed(self.now)
            facts.append(Formed(after.generation, len(self.required)))
        if after.phase != before.phase and after.phase in ("done", "failed"):
            facts.append(Ended(after.code, after.message, *self.model.why_it_ended(after)))
        assert [fact for fact in found if not isinstance(fact, Note)] == facts
        outcomes.update(type(fact).__name__ for fact in found)

    def check_restarts(self) -> None:
        """Each loss and stall is counted by its cause, but for the one with which the job gives a task up."""
        facts = [entry.fact for entry in self.core.chronicle.since(0)]
        assert sum(isinstance(fact, Ended) for fact in facts) == (self.core.phase in ("done", "failed"))
        counted = Counter[str]()
        for fact, after in itertools.zip_longest(facts, facts[1:]):
            given_up = isinstance(fact, Lost) and fact.then == "others_continue" and isinstance(after, Ended)
            if isinstance(fact, Lost | Stalled) and not (given_up and self.core.code is Exit.GAVE_UP):
                counted[fact.loss.cause.label] += 1
        assert +self.core.chronicle.restarts == counted

    def some(self, number: int) -> Truth:
        return self.tasks[number % len(self.tasks)]

    def send(self, task: Truth, **changes: Any) -> Reply:
        task.report, task.at = replace(task.report, **changes), self.now
        expected = self.model.report(task.report, self.now, self.running)
        self.watch(lambda: self.core.report(task.report, self.now), expected)
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
            reply = self.send(task, generation=0, ended_early=generation, loss=KILLED)
            if self.mirrored and generation == current:
                assert (reply.phase, reply.generation) != ("running", current)

    def restart_supervisor(self, number: int) -> None:
        task, current = self.some(number), self.core.generation
        if task.report.leaving and task.report.generation:
            return  # the next one waits until this one's child has ended: test_fencing.py
        there, task.reachable = task.at is not None, False
        incarnation = str(int(task.report.incarnation) + 1)
        reply = self.send(
            task, incarnation=incarnation, generation=0, ended_early=0, leaving=False, status=ChildStatus()
        )
        if self.mirrored and there:
            assert (reply.phase, reply.generation) != ("running", current)

    def leave(self, number: int) -> None:
        self.send(self.some(number), leaving=True)

    def advance(self, number: int) -> None:
        if self.tasks[0].report.generation:
            self.step += 10 * number
            self.send(self.tasks[0], status=ChildStatus(step=self.step, finishing=number == 7))

    def wait(self, number: int) -> None:
        self.now += (1, 1, 1, 5, 5, LOST, 11, 31)[number]
        if number % 2:
            self.watch(lambda: self.core.tick(self.now), self.model.tick(self.now, self.running))

    def make_no_step_for_long(self, number: int) -> None:
        for _ in range(14 if number > 5 else 0):
            self.now += 5
            for n in range(len(self.tasks)):
                self.report(n)
            self.watch(lambda: self.core.tick(self.now), self.model.tick(self.now, self.running))

    def meet_a_stranger(self, number: int) -> None:
        before, noted = self.core.reply(), self.core.chronicle.noted
        changes: dict[str, Any] = dict([STRANGE[number % len(STRANGE)]])
        report = replace(self.some(number).report, incarnation="?", loss=replace(DIVERGED, code=2), **changes)
        assert self.core.report(report, self.now).code == Exit.MISMATCH
        assert (self.core.reply(), self.core.chronicle.noted) == (before, noted), "a stranger changes nothing"

    def fail_or_finish(self, number: int) -> None:
        if number == 7 and self.core.generation % 2:
            self.send(self.tasks[-1], loss=DIVERGED)
        elif number == 7:
            self.watch(lambda: self.core.end(Exit.OK, ""))

    def stop_this_generation(self, number: int) -> None:
        if number > 4:
            self.watch(lambda: self.core.generation_over(self.now), looks_at_the_clock=False)


ACTIONS = [
    *[Job.all_but_perhaps_one_follow, Job.report, Job.wait, Job.advance, Job.lose_child] * 2,
    *[Job.cannot_be_dialled, Job.restart_supervisor, Job.leave, Job.meet_a_stranger, Job.fail_or_finish],
    *[Job.stop_this_generation, Job.make_no_step_for_long],
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
        job.check_restarts()
        assert set(snapshot.task_rows(job.core, job.now)) == {task.report.task for task in job.tasks}
    assert min(outcomes[what] for what in ("done", "MISSING", "MISMATCH", "DIVERGED", "GAVE_UP")) >= 10, outcomes
    assert min(outcomes[kind] for kind in ("Lost", "Formed", "Back", "Ended", "Stalled")) >= 10, outcomes
    assert outcomes["formed"] > 500, "too few clusters formed for the test to mean anything"
