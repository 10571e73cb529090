"""A rendezvous with a fake clock, and methods for the events of its tasks."""

from dataclasses import replace
from typing import Any

from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.protocol.child import ChildStatus
from trainer.protocol.facts import Cause, Fact, Loss
from trainer.protocol.reports import Reply, Report
from trainer.protocol.stacks import TaskStacks
from trainer.supervisor.rendezvous.state_machine import Rendezvous

START, REJOIN, LOST, PROGRESS = 100.0, 80.0, 10.0, 300.0
ASKED = 1.0
"""Until all tasks have answered the chief's question for their stacks."""
DEADLINES = {"start": START, "rejoin": REJOIN, "task_lost": LOST, "progress": PROGRESS}
PS = {"worker": 2, "ps": 1}
VERSIONS = {"tensorflow": "2.21.0", "keras": "3.15.1", "trainer": "0.1.0"}
KILLED = Loss(Cause.KILLED, signal="SIGKILL")


def failed(code: int, error: str, **more: Any) -> Loss:
    """The loss of a task whose child reported an error of its own."""
    return Loss(Cause.ERROR, error=error, code=code, **more)


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
        self.workers: dict[str, ChildStatus] = {}
        """The coordinator's measurements of each ps-worker, as of the chief's last report."""
        self.reports = {
            name: Report(name, "first", self.tasks[0].digest, "spec", "workload", VERSIONS)
            for name in (*(task.name for task in self.tasks), "worker:9")
        }

    def report(self, name: str, **changes: Any) -> Reply:
        """That task reports as it did before, but for these changes; it answers the chief's question for stacks."""
        if number := self.core.gathering.number:
            changes.setdefault("stacks", TaskStacks(number))
        self.reports[name] = replace(self.reports[name], **changes)
        return self.core.report(self.reports[name], self.now, self.workers if name == self.chief else None)

    def reach(self, name: str, problem: str | None = None) -> None:
        """The verdict of dialling that task back."""
        self.core.reachable(name, self.reports[name].incarnation, problem, self.now)

    def arrive(self, *names: str) -> None:
        for name in names or self.core.tasks.required:
            self.report(name)
            self.reach(name)

    def run(self) -> None:
        """All are there, and start their children."""
        self.arrive()
        assert self.core.phase == "running"
        for name in self.core.tasks.required:
            self.report(name, generation=self.core.generation, ended_early=0, loss=None)

    def stop_children(self) -> None:
        """As supervisors do when they hear `forming`."""
        for name in self.core.tasks.required:
            self.report(name, generation=0)

    def restart(self, name: str) -> Reply:
        """Replaces the task's supervisor by a new one."""
        incarnation = f"{self.reports[name].incarnation}+"
        return self.report(name, incarnation=incarnation, generation=0, ended_early=0, loss=None, status=ChildStatus())

    def wait(self, seconds: float, *silent: str) -> None:
        """Advances the clock second by second; all present tasks but the silent ones keep reporting."""
        for _ in range(round(seconds)):
            self.now += 1
            for name in self.core.tasks.members:
                if name not in silent:
                    self.report(name)
            self.core.tick(self.now)

    @property
    def outcome(self) -> tuple[str, Exit]:
        return self.core.phase, self.core.code

    @property
    def logged(self) -> list[str]:
        return [event.text for event in self.core.chronicle.events]

    @property
    def facts(self) -> list[Fact]:
        """All facts that the job has noted, also those that are no news."""
        return [entry.fact for entry in self.core.chronicle.since(0)]


def lose_child(job: Job, name: str) -> None:
    job.report(name, generation=0, ended_early=job.core.generation, loss=KILLED)


def restart_supervisor(job: Job, name: str) -> None:
    job.restart(name)


def fall_silent(job: Job, name: str) -> None:
    job.wait(LOST + 1, name)


LOSSES = [
    (lose_child, KILLED, "killed by SIGKILL"),
    (restart_supervisor, Loss(Cause.SUPERVISOR_RESTARTED), "its supervisor was restarted"),
    (fall_silent, Loss(Cause.SILENT, seconds=LOST), "silent for 10 s"),
]


def step(job: Job, number: int, workers: dict[str, int] | None = None, **status: Any) -> None:
    """The chief's child has made a step, and knows these steps of ps-workers."""
    if workers is not None:
        job.workers = {name: ChildStatus(step=own) for name, own in workers.items()}
    job.report(job.chief, status=ChildStatus(step=number, **status))


def fail_once_more(job: Job) -> None:
    lose_child(job, "worker:1")
    job.stop_children()
    for name in job.core.tasks.required:
        job.report(name, generation=job.core.generation, ended_early=0, loss=None, status=ChildStatus())
