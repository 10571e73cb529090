"""For each promise a history that keeps it, and one that breaks it, both written by hand."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.simulation.auditor import audit
from tests.simulation.trace import (
    Any as AnyEvent,
)
from tests.simulation.trace import (
    AskedToStop,
    CheckpointWritten,
    ChildEnded,
    ChildOrdered,
    ChildStarted,
    Exited,
    Fault,
    History,
    Killed,
    Logged,
    Started,
    StepMade,
    Wrote,
)
from trainer.job.spec import JobSpec

DEADLINES = {
    "start": 60,
    "rejoin": 60,
    "hang": 10,
    "progress": 60,
    "task_lost": 5,
    "chief_lost": 60,
    "evaluation": 60,
    "stop": 8,
    "notify": 5,
}


class Story:
    """A history that is written by hand: each method adds events, in any order."""

    def __init__(self, strategy: str = "multi_worker_mirrored", **settings: Any) -> None:
        train = {"steps": 10, "checkpoint_steps": 5, **settings.pop("train", {})}
        deadlines = {**DEADLINES, **settings.pop("deadlines", {})}
        tasks = settings.pop("tasks", {"worker": 2})
        self.spec = JobSpec.model_validate(
            {"name": "job", "strategy": strategy, "train": train, "deadlines": deadlines, "tasks": tasks, **settings}
        )
        counts = self.spec.tasks.counts()
        if self.spec.traits.servers:
            counts = {"chief": 1, **counts}
        self.tasks = tuple(f"{kind}:{number}" for kind, count in counts.items() for number in range(count))
        self.events: list[AnyEvent] = []
        self.task_of: dict[int, str] = {}
        self.process_of: dict[int, int] = {}
        self.generation_of: dict[int, int] = {}
        self.files: dict[str, bytes] = {}
        self.outcome: dict[str, int | None] = {}
        self.left: list[str] = []
        self.faults_over = 0.0

    def start(self, at: float, task: str, process: int, run: str = "first") -> None:
        self.task_of[process] = task
        self.events.append(Started(at, task, process, f"host of {task}", run))

    def child(self, at: float, process: int, child: int) -> None:
        self.process_of[child] = process
        self.events.append(ChildStarted(at, self.task_of[process], process, child))

    def order(self, at: float, child: int, generation: int, step: int) -> None:
        self.generation_of[child] = generation
        self.events.append(ChildOrdered(at, *self._whose(child), child, generation, step))

    def steps(self, at: float, child: int, first: int, last: int, every: float = 0.1) -> None:
        """The steps from the first to the last, the last one at that time."""
        for step in range(first, last + 1):
            moment = at - (last - step) * every
            self.events.append(StepMade(moment, *self._whose(child), child, self.generation_of[child], step))

    def checkpoint(self, at: float, child: int, step: int) -> None:
        self.events.append(CheckpointWritten(at, *self._whose(child), child, self.generation_of[child], step))

    def end(self, at: float, child: int, by: str = "supervisor", code: int = -9) -> None:
        self.events.append(ChildEnded(at, *self._whose(child), child, code, by))

    def exit(self, at: float, process: int, code: int) -> None:
        self.outcome[self.task_of[process]] = code
        self.events.append(Exited(at, self.task_of[process], process, code))

    def kill(self, at: float, process: int) -> None:
        self.outcome[self.task_of[process]] = None
        self.events.append(Killed(at, self.task_of[process], process))
        self.fault("kill", at, at, self.task_of[process])

    def stop(self, at: float, process: int) -> None:
        self.events.append(AskedToStop(at, self.task_of[process], process))

    def wrote(self, at: float, process: int, file: str, **content: Any) -> None:
        text = json.dumps(content).encode() + b"\n" if content else b""
        self.files[file] = text
        self.events.append(Wrote(at, self.task_of[process], process, file, text))

    def log(self, at: float, process: int, line: str, error: bool = True) -> None:
        self.events.append(Logged(at, self.task_of[process], process, line, error))

    def fault(self, kind: str, at: float, until: float, task: str = "") -> None:
        self.events.append(Fault(at, task, 0, kind, until))
        self.faults_over = max(self.faults_over, until)

    def fact(self, at: float, process: int, kind: str, **fields: Any) -> None:
        """A line of the journal."""
        common = {"term": process, "time": at, "kind": kind, "generation": 1, "step": 0, "text": "It happened."}
        self.wrote(at, process, "journal.jsonl", **(common | fields))

    def _whose(self, child: int) -> tuple[str, int]:
        process = self.process_of[child]
        return self.task_of[process], process

    @property
    def history(self) -> History:
        events = sorted(self.events, key=lambda event: event.at)
        asked = {event.task for event in events if isinstance(event, AskedToStop)} == set(self.tasks)
        return History(
            self.spec,
            self.tasks,
            events,
            faults_over=self.faults_over,
            asked_to_stop=asked,
            ended=events[-1].at,
            outcome=self.outcome,
            left=self.left,
            files={name: content for name, content in self.files.items() if content},
        )

    def found(self) -> list[str]:
        return audit(self.history)


def begun(strategy: str = "multi_worker_mirrored", **settings: Any) -> Story:
    """All tasks have started, processes and children are numbered from 1 on, and generation 1 begins at 2 s."""
    story = Story(strategy, **settings)
    for number, task in enumerate(story.tasks, 1):
        story.start(0, task, number)
        story.child(0.5, number, number)
    story.wrote(0.1, 1, "lease.json", incarnation="1", number=1)
    story.fact(0.2, 1, "began")
    formed(story, 2, 1, 0, *range(1, len(story.tasks) + 1))
    return story


def formed(story: Story, at: float, generation: int, step: int, *children: int) -> None:
    story.fact(at, story.process_of[children[0]], "formed", number=generation, generation=generation)
    for child in children:
        story.order(at, child, generation, step)


def trained(story: Story, at: float, first: int, last: int, *children: int) -> None:
    """These children make these steps until then, and the first one a checkpoint of the last."""
    for child in children[:1] if story.spec.traits.servers else children:
        story.steps(at, child, first, last)
    story.checkpoint(at + 0.01, children[0], last)


def done(story: Story, at: float, *children: int) -> None:
    """The job succeeds, with these children."""
    chief = story.process_of[children[0]]
    story.wrote(at, chief, "result.json", status="done", steps=10, generations=story.generation_of[children[0]])
    story.fact(at, chief, "ended", code=0)
    story.wrote(at, chief, "state.json")
    for child in reversed(children):
        story.end(at + 0.5, child, "supervisor", 0)
        story.exit(at + 1, story.process_of[child], 0)


def simple(strategy: str = "multi_worker_mirrored", **settings: Any) -> Story:
    """A job to which nothing happens."""
    story = begun(strategy, **settings)
    children = range(1, len(story.tasks) + 1)
    trained(story, 4, 1, 5, *children)
    trained(story, 6, 6, 10, *children)
    done(story, 8, *children)
    return story


def restarted(step: int = 5, generation: int = 2, at: float = 6.0) -> Story:
    """A worker's child of multi_worker_mirrored crashes after step 7, and generation 2 begins from the checkpoint."""
    story = begun()
    trained(story, 4, 1, 5, 1, 2)
    story.steps(5, 1, 6, 7)
    story.steps(5, 2, 6, 7)
    crash(story, 5.2, 2)
    story.end(5.5, 1)
    story.child(5.5, 1, 3)
    story.child(5.5, 2, 4)
    formed(story, at, generation, step, 3, 4)
    trained(story, 8, step + 1, 10, 3, 4)
    done(story, 9, 3, 4)
    return story


def crash(story: Story, at: float, child: int) -> None:
    story.fault("crash", at, at, story.task_of[story.process_of[child]])
    story.end(at, child, "world")


def assert_broken(story: Story, *words: str) -> None:
    found = story.found()
    assert any(all(word in line for word in words) for line in found), found


SERVERS = {"chief": 1, "ps": 1, "worker": 2}


def test_nothing_is_found_in_a_job_to_which_nothing_happens() -> None:
    assert simple().found() == []
    assert simple("parameter_server", tasks=SERVERS).found() == []
    assert simple("parameter_server", tasks=SERVERS | {"evaluator": 1}).found() == []
    assert restarted().found() == []


def test_one_child_of_a_task_trains_in_a_generation() -> None:
    def story(end: float, killed: bool = True) -> Story:
        """A ps-worker's supervisor is killed at 3 s, its child lives on until `end`."""
        story = begun("parameter_server", tasks=SERVERS)
        if killed:
            story.kill(3, 3)
        story.end(end, 3, "world")
        story.start(3.5, "worker:1", 5)
        story.child(3.5, 5, 5)
        story.order(4, 5, 1, 0)
        trained(story, 6, 1, 10, 1)
        done(story, 8, 1, 2, 4, 5)
        return story

    assert story(3).found() == []
    assert story(4.9).found() == []
    assert_broken(story(5.5), "worker:1", "two children train in generation 1: child 3 of process 3, until 5.5 s")


def test_an_unreachable_child_that_restarts_alone_trains_until_it_is_reached() -> None:
    def story(strategy: str, end: float) -> Story:
        story = begun(strategy, tasks=SERVERS if strategy == "parameter_server" else {"chief": 1, "worker": 3})
        story.fault("zombie", 3, 10, "worker:1")
        story.start(3.5, "worker:1", 5)
        story.child(3.5, 5, 5)
        story.order(9, 5, 1, 0)
        story.end(end, 3)
        story.log(end, 3, "another process has taken the place of worker:1")
        story.exit(end, 3, 20)
        trained(story, 15, 1, 10, 1)
        done(story, 60, 1, 2, 4, 5)
        return story

    assert story("parameter_server", 12).found() == []
    assert_broken(story("parameter_server", 35), "two children train in generation 1")
    assert_broken(story("multi_worker_mirrored", 12), "two children train in generation 1")


def test_a_supervisor_has_one_child_that_trains() -> None:
    story = restarted()
    story.events = [e for e in story.events if not (isinstance(e, ChildEnded) and e.child == 1)]
    story.end(6.5, 1)
    assert_broken(story, "6.0 s: worker:0", "child 3 is ordered while child 1 still trains")


def test_a_supervisor_has_one_standby() -> None:
    story = simple(deadlines={"stop": 0.5})
    story.child(2, 1, 7)
    story.end(8, 7)
    assert story.found() == []
    story.child(2.1, 1, 8)
    story.end(8, 8)
    assert_broken(story, "worker:0", "process 1 keeps 3 children")


def test_a_generation_has_one_meaning() -> None:
    assert_broken(restarted(generation=1), "generation 1 begins twice", "child 2 of process 2")


def test_generations_increase() -> None:
    story = restarted(generation=2)
    story.order(8.5, 3, 1, 0)
    assert_broken(story, "8.5 s", "generation 1 begins after generation 2")


def test_all_children_of_a_generation_begin_from_one_step() -> None:
    story = restarted()
    story.events = [e for e in story.events if not (isinstance(e, ChildOrdered) and e.child == 4)]
    story.order(6, 4, 2, 0)
    assert_broken(story, "worker:1", "begins generation 2 from step 0, worker:0 from step 5")


def test_a_generation_begins_from_the_newest_checkpoint() -> None:
    assert_broken(restarted(step=0), "generation 2 begins from step 0, not from the checkpoint of step 5, of 4.0 s")
    assert_broken(restarted(step=7), "generation 2 begins from step 7: no checkpoint has it")


def test_a_graph_job_begins_from_the_beginning() -> None:
    def story(step: int) -> Story:
        story = Story("graph", tasks={"chief": 1, "worker": 1}, workload="sum")
        for number, task in enumerate(story.tasks, 1):
            story.start(0, task, number)
            story.child(0, number, number)
        story.wrote(0.1, 1, "lease.json", incarnation="1", number=1)
        formed(story, 1, 1, step, 1, 2)
        done(story, 5, 1, 2)
        return story

    assert story(0).found() == []
    assert_broken(story(5), "generation 1 begins from step 5, not from the beginning")


def test_each_step_is_made_once() -> None:
    story = simple()
    story.steps(7, 1, 10, 10)
    assert_broken(story, "7.0 s: worker:0", "makes step 10 in generation 1 after step 10")
    story = simple()
    story.steps(7, 2, 11, 11)
    assert_broken(story, "worker:1", "makes step 11 in generation 1, and the job has 10 steps")
    story.fault("lie", 3, 3, "worker:1")
    assert story.found() == []


def test_success_has_all_steps() -> None:
    story = simple()
    story.events = [e for e in story.events if not (isinstance(e, StepMade) and e.step == 10)]
    assert_broken(story, "process 1 ends with 0, but step 10 was never made")
    story = simple()
    story.events = [e for e in story.events if not (isinstance(e, CheckpointWritten) and e.step == 10)]
    assert_broken(story, "process 1 ends with 0 without a checkpoint of step 10")


def test_a_task_that_restarts_alone_lets_the_others_train() -> None:
    def story(task: str) -> Story:
        story = begun("parameter_server", tasks=SERVERS)
        trained(story, 3, 1, 5, 1)
        crash(story, 4, story.tasks.index(task) + 1)
        for number in range(1, 5):
            if story.tasks[number - 1] != task:
                story.end(4.5, number)
            story.child(4.5, number, number + 4)
        formed(story, 5, 2, 5, 5, 6, 7, 8)
        trained(story, 7, 6, 10, 5)
        done(story, 8, 5, 6, 7, 8)
        return story

    assert story("ps:0").found() == []
    assert_broken(story("worker:1"), "generation 2 begins, and no task had failed that needs it")


def test_a_generation_begins_with_all_tasks() -> None:
    def story(begins: float) -> Story:
        story = begun()
        trained(story, 4, 1, 5, 1, 2)
        story.kill(5, 2)
        story.end(5, 2, "world")
        story.end(6, 1)
        story.child(6, 1, 3)
        story.start(20, "worker:1", 3)
        story.child(20, 3, 4)
        formed(story, begins, 2, 5, 3)
        story.order(21, 4, 2, 5)
        trained(story, 23, 6, 10, 3, 4)
        done(story, 24, 3, 4)
        return story

    assert story(21).found() == []
    assert_broken(story(18), "18.0 s: worker:0: generation 2 begins without worker:1, away since 5.0 s")


def test_restarts_without_a_new_step_are_counted() -> None:
    def story(restarts: int) -> Story:
        story = begun(max_restarts=2)
        trained(story, 4, 1, 5, 1, 2)
        for number in range(1, restarts + 1):
            crash(story, 4 + number, 2 * number)
            story.end(4.1 + number, 2 * number - 1)
            story.child(4.2 + number, 1, 2 * number + 1)
            story.child(4.2 + number, 2, 2 * number + 2)
            formed(story, 4.5 + number, number + 1, 5, 2 * number + 1, 2 * number + 2)
        children = 2 * restarts + 1, 2 * restarts + 2
        trained(story, 9, 6, 10, *children)
        done(story, 10, *children)
        return story

    assert story(2).found() == []
    assert_broken(story(3), "generation 4 is restart 3 in a row without a new step, of 2")


def stopped(at: float, *, kept: int) -> Story:
    """The whole job is asked to stop at 5 s, after step 7, and its last task exits then."""
    story = begun()
    trained(story, 4, 1, 5, 1, 2)
    story.steps(4.9, 1, 6, 7)
    story.steps(4.9, 2, 6, 7)
    story.stop(5, 1)
    story.stop(5, 2)
    if kept == 7:
        story.checkpoint(5.5, 1, 7)
    story.wrote(5.6, 1, "state.json", end={"code": 143, "message": "stopped"})
    story.fact(5.6, 1, "ended", code=143)
    for number in (2, 1):
        story.end(5.7, number, "itself", 0)
        story.exit(at, number, 143)
    return story


def test_a_task_stops_in_time() -> None:
    assert stopped(6, kept=7).found() == []
    assert_broken(stopped(25, kept=7), "process 1 was asked to stop at 5.0 s: deadlines.stop is over")


def test_a_stop_keeps_the_step() -> None:
    assert_broken(stopped(6, kept=5), "process 1 was asked to stop after step 7, and step 5 was kept")


def test_success_has_a_result() -> None:
    story = simple()
    story.events = [e for e in story.events if not (isinstance(e, Wrote) and e.file == "result.json")]
    assert_broken(story, "9.0 s: worker:0: process 1 ends with 0, but there is no result.json")
    assert_broken(story, "9.0 s: worker:1: process 2 ends with 0, but there is no result.json")


def test_nothing_is_left() -> None:
    story = simple()
    story.left = ["port of process 2"]
    assert_broken(story, "port of process 2 is left")
    story = simple()
    story.events = [e for e in story.events if not (isinstance(e, Exited) and e.process == 2)]
    assert_broken(story, "worker:1: process 2 still runs")


def test_a_job_ends_in_time() -> None:
    story = simple()
    story.events = [e for e in story.events if e.at < 7]
    done(story, 400, 1, 2)
    assert story.found() == []
    story = begun(max_restarts=0)
    trained(story, 4, 1, 10, 1, 2)
    done(story, 900, 1, 2)
    assert_broken(story, "901.0 s: worker:0: the job had not ended since its last step or start at 4.0 s")


def test_the_first_verdict_stands() -> None:
    def story(code: int) -> Story:
        story = simple()
        story.start(20, "worker:0", 3)
        story.log(21, 3, "model_dir: it is another job's: choose another")
        story.exit(21, 3, code)
        return story

    assert story(0).found() == []
    assert_broken(story(2), "21.0 s: worker:0: process 3 ends with 2, process 1 had written the result of 0")


def test_an_audit_is_fast() -> None:
    history = restarted().history
    begin = time.perf_counter()
    for _ in range(100):
        audit(history)
    assert (time.perf_counter() - begin) / 100 < 0.01
