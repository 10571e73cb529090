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
    story = restarted()
    story.order(8.5, 3, 1, 0)
    assert_broken(story, "8.5 s", "generation 1 begins after generation 2, in one process")


def test_generations_increase_over_the_processes_of_the_chief() -> None:
    def story(generation: int) -> Story:
        """The chief is killed in generation 1, and again in generation 3."""
        story = begun()
        story.kill(3, 1)
        story.end(3, 1, "world")
        story.start(4, "worker:0", 3)
        story.wrote(4, 3, "lease.json", incarnation="3", number=3)
        story.child(4, 3, 3)
        story.end(5, 2)
        story.child(5, 2, 4)
        formed(story, 6, 3, 0, 3, 4)
        story.kill(7, 3)
        story.end(7, 3, "world")
        story.start(8, "worker:0", 4)
        story.wrote(8, 4, "lease.json", incarnation="4", number=4)
        story.child(8, 4, 5)
        story.end(9, 4)
        story.child(9, 2, 6)
        formed(story, 10, generation, 0, 5, 6)
        trained(story, 12, 1, 10, 5, 6)
        done(story, 13, 5, 6)
        return story

    assert story(4).found() == []
    assert any(line == "10.0 s: worker:0: generation 2 begins after generation 3" for line in story(2).found())


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
    hung = story("worker:1")
    hung.fault("hang", 1, 1, "ps:0")
    assert hung.found() == []
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
        trained(story, 10, 6, 10, *children)
        done(story, 11, *children)
        return story

    assert story(3).found() == []
    assert_broken(story(4), "generation 5 is restart 3 in a row without a new step, of 2")


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


def failed(code: int, line: str, *, at: float = 70, chief: float = 0, ready: bool = True, **settings: Any) -> Story:
    """A job of which worker:1 is never started, and whose chief fails with this code."""
    story = Story(**settings)
    story.start(chief, "worker:0", 1)
    story.child(chief, 1, 1)
    story.wrote(chief, 1, "lease.json", incarnation="1", number=1)
    if ready:
        story.log(at - 20, 1, "waiting: 1 of 2 tasks are ready; worker:1: has not reported", error=False)
    story.log(at, 1, line)
    story.end(at, 1)
    story.exit(at, 1, code)
    return story


def test_a_verdict_in_the_journal_stands() -> None:
    def story(code: int) -> Story:
        story = failed(10, "worker:1 is missing: start it")
        story.events = [e for e in story.events if not isinstance(e, Exited)]
        story.fact(69.9, 1, "ended", code=10)
        story.kill(70, 1)
        story.start(71, "worker:0", 2)
        story.log(72, 2, "worker:1 is missing: start it")
        story.exit(140, 2, code)
        story.log(120, 2, "waiting: 1 of 2 tasks are ready", error=False)
        return story

    assert story(10).found() == []
    assert_broken(story(15), "ends with 15, but it is the chief")
    assert_broken(story(14), "process 2 ends with 14, process 1 had written to the journal an end with 10")


def test_1_is_a_defect() -> None:
    assert_broken(failed(1, "KeyError: 4"), "process 1 ends with 1, but that is a defect in trainer")
    assert_broken(failed(99, "?"), "process 1 ends with 99, an unknown exit code")


def test_2_needs_a_disk_or_a_child_with_an_error() -> None:
    story = failed(2, "model_dir: No space left on device: make room")
    assert_broken(story, "process 1 ends with 2, but neither the disk nor a child gave a reason")
    story.fault("disk full", 60, 80)
    assert story.found() == []


def test_10_needs_a_task_that_is_missing() -> None:
    line = "worker:1 has not come within 60 s (deadlines.start): start it"
    assert failed(10, line).found() == []
    assert_broken(failed(10, line, chief=30), "process 1 ends with 10, but the job began at 30.0 s")
    story = failed(10, line)
    story.start(20, "worker:1", 2)
    story.exit(71, 2, 10)
    assert_broken(story, "process 1 ends with 10, but no task was missing for so long")
    story = begun()
    crash(story, 10, 2)
    story.end(10, 1)
    story.child(11, 1, 3)
    story.child(11, 2, 4)
    formed(story, 20, 2, 0, 3, 4)
    story.log(60, 1, "worker:1 is missing")
    story.exit(60, 1, 10)
    assert_broken(story, "process 1 ends with 10, but generation 2 began at 20.0 s")


def test_10_names_a_task_and_follows_lines_that_say_who_is_ready() -> None:
    assert_broken(failed(10, "a task is missing"), "process 1 ends with 10, and its error names no task")
    assert_broken(failed(10, "worker:1 is missing", ready=False), "has not logged how many tasks are ready")


def test_11_needs_a_task_that_does_not_answer() -> None:
    story = failed(11, "worker:1 does not answer at its address for 60 s")
    assert_broken(story, "process 1 ends with 11, but each task answered at its address")
    story.fault("cut", 5, 69, "worker:1")
    assert story.found() == []


def test_12_13_16_and_18_need_a_child_that_says_so() -> None:
    assert_broken(failed(12, "worker:0 has no GPU"), "ends with 12, but no child gave a reason")
    assert_broken(failed(13, "the loss became NaN at step 3"), "ends with 13, but no child gave a reason")
    assert_broken(failed(16, "Docker is missing"), "ends with 16, but that is an exit code of submit and track")
    assert_broken(failed(18, "its program ended"), "ends with 18, but no program failed")
    story = failed(13, "the loss became NaN at step 3")
    story.events = [e for e in story.events if not isinstance(e, ChildEnded)]
    story.end(69, 1, "itself", 1)
    assert story.found() == []


def test_14_needs_restarts_without_a_new_step() -> None:
    def story(restarts: int) -> Story:
        """After step 7 of generation 1, and after each further generation, worker:1's child crashes; max_restarts is
        2.
        """
        story = begun(max_restarts=2)
        trained(story, 4, 1, 5, 1, 2)
        for number in range(restarts + 1):
            crash(story, 6 + number, 2 * number + 2)
            story.end(6.1 + number, 2 * number + 1)
            if number < restarts:
                story.child(6.1 + number, 1, 2 * number + 3)
                story.child(6.1 + number, 2, 2 * number + 4)
                formed(story, 6.3 + number, number + 2, 5, 2 * number + 3, 2 * number + 4)
        story.fact(15, 1, "ended", code=14)
        story.wrote(15, 1, "state.json", end={"code": 14})
        story.log(15, 1, "worker:1 crashed 3 times in a row without a new step: look at its log")
        story.exit(16, 2, 14)
        story.exit(16.1, 1, 14)
        return story

    assert story(2).found() == []
    text = "process 1 ends with 14, but since the last new step, in generation 1, the cluster was formed again 1 times"
    assert_broken(story(1), text)


def alone(start: float, end: float, code: int = 15) -> Story:
    """The chief is killed at 5 s, and worker:1, which was started then, waits for it until then."""
    story = begun()
    story.events = [e for e in story.events if not (isinstance(e, Started) and e.process == 2)]
    story.start(start, "worker:1", 2)
    story.kill(5, 1)
    story.end(5, 1, "world")
    story.log(end, 2, "no contact with the chief")
    story.end(end, 2)
    story.exit(end, 2, code)
    return story


def test_15_needs_a_chief_that_is_away() -> None:
    assert alone(0, 66).found() == []
    assert_broken(alone(0, 40), "process 2 ends with 15, but it began at 0.0 s")
    story = alone(0, 66)
    story.start(20, "worker:0", 3)
    story.log(70, 3, "worker:1 is missing")
    story.kill(70, 3)
    assert_broken(story, "worker:1: process 2 ends with 15, but the chief was there for 46.0 s")


def test_17_needs_an_evaluation_that_is_late_or_an_evaluator_that_failed() -> None:
    def story(fails: bool, **result: Any) -> Story:
        story = simple("parameter_server", tasks=SERVERS | {"evaluator": 1})
        number = story.tasks.index("evaluator:0") + 1
        story.events = [e for e in story.events if not (isinstance(e, Exited) and e.process == number)]
        story.wrote(8, 1, "result.json", steps=10, generations=1, **result)
        story.exit(9, number, 17)
        if fails:
            crash(story, 7, number)
        return story

    assert story(True, warnings=["the evaluator failed"]).found() == []
    assert_broken(story(True, warnings=[]), "evaluator:0", "ends with 17, and result.json has no warning")
    assert_broken(story(False, warnings=["?"]), "ends with 17, but nothing happened to the evaluator")
    assert_broken(
        failed(17, "the evaluation takes too long", at=30), "ends with 17, but the chief's child trained until"
    )


def test_19_needs_a_job_that_is_late() -> None:
    line = "the job took longer than 60 s (deadlines.job): raise it"
    assert failed(19, line, deadlines={"job": 60}).found() == []
    assert_broken(failed(19, line), "process 1 ends with 19, but there is no deadlines.job")
    assert_broken(failed(19, line, at=50, deadlines={"job": 60}), "ends with 19, but the job began at 0.0 s")


def test_a_job_ends_within_deadlines_job() -> None:
    line = "worker:1 is missing: start it"
    assert failed(10, line, deadlines={"job": 60}).found() == []
    assert_broken(failed(10, line, at=160, deadlines={"job": 60}), "process 1 still runs: deadlines.job is 60.0 s")


def test_20_needs_another_process() -> None:
    assert_broken(alone(0, 66, 20), "process 2 ends with 20, but no other process has its place")
    story = alone(0, 66, 20)
    story.fault("zombie", 10, 65, "worker:1")
    story.start(11, "worker:1", 3)
    story.log(72, 3, "no contact with the chief")
    story.exit(72, 3, 15)
    assert story.found() == []


def test_143_needs_a_request() -> None:
    story = alone(0, 66, 143)
    assert_broken(story, "process 2 ends with 143, but nobody asked it to stop")
    story.stop(60, 2)
    assert story.found() == []


def successor(*writes: tuple[float, str], asked: float | None = None, second: float = 12) -> Story:
    """A chief is cut off, another one takes the lease at 12 s, and the first one writes these files."""
    story = begun()
    story.fault("zombie", 5, 12.5, "worker:0")
    story.start(6, "worker:0", 3)
    story.wrote(second, 3, "lease.json", incarnation="3", number=3)
    for at, file in writes:
        if file == "journal.jsonl":
            story.fact(at, 1, "slow")
        elif file.startswith("checkpoint"):
            story.checkpoint(at, 1, int(file.split()[1]))
        else:
            story.wrote(at, 1, file, incarnation="1", number=4)
    story.end(20, 1)
    story.log(20, 1, "another process is the chief")
    story.exit(20, 1, 20)
    story.child(12, 3, 3)
    story.end(14, 2)
    story.child(14, 2, 4)
    formed(story, 21, 2, 0, 3, 4)
    trained(story, 24, 1, 10, 3, 4)
    done(story, 25, 3, 4)
    return story


def test_only_the_newest_chief_writes() -> None:
    assert successor().found() == []
    assert successor((11, "state.json"), (13.5, "state.json")).found() == []
    assert_broken(
        successor((14.5, "state.json")), "14.5 s: worker:0: process 1 writes state.json, process 3 has the lease"
    )
    assert_broken(successor((13, "lease.json")), "process 1 takes the lease back from process 3")
    story = successor()
    story.wrote(11, 3, "state.json", generation=7)
    assert_broken(story, "11.0 s: worker:0: process 3 writes state.json, process 1 has the lease")


def test_a_late_line_of_the_journal_has_the_earlier_term() -> None:
    assert successor((18, "journal.jsonl")).found() == []
    story = successor()
    story.fact(18, 1, "slow", term=3)
    assert_broken(story, "18.0 s: worker:0: process 1 writes journal.jsonl, process 3 has the lease since 12.0 s")


def test_an_earlier_chief_writes_no_checkpoint() -> None:
    assert successor((11, "checkpoint 0")).found() == []
    text = "child 1 of process 1 writes the checkpoint of step 0: process 3 has the lease since 12.0 s"
    assert_broken(successor((19, "checkpoint 0")), text)
    story = successor((19, "checkpoint 0"))
    story.fault("freeze", 6, 18, "worker:0")
    assert story.found() == []


def test_a_successor_waits_for_a_chief_that_stops() -> None:
    def story(lease: float) -> Story:
        story = begun()
        trained(story, 4, 1, 5, 1, 2)
        story.stop(5, 1)
        story.start(6, "worker:0", 3)
        story.wrote(lease, 3, "lease.json", incarnation="3", number=3)
        story.end(11.9, 1)
        story.exit(12, 1, 143)
        story.end(12, 2)
        story.child(12, 3, 3)
        story.child(12, 2, 4)
        formed(story, 14, 2, 5, 3, 4)
        trained(story, 16, 6, 10, 3, 4)
        done(story, 18, 3, 4)
        return story

    assert story(12.1).found() == []
    assert_broken(story(7), "7.0 s: worker:0: process 3 takes the lease, and process 1 still stops")


def test_the_journal_has_lines_with_fields() -> None:
    story = simple()
    story.events.append(Wrote(7, "worker:0", 1, "journal.jsonl", b"{damaged\n"))
    assert_broken(story, "process 1 writes no JSON object to the journal")
    story = simple()
    story.wrote(7, 1, "journal.jsonl", kind="slow", time=7, text="", generation=1, step=0)
    assert_broken(story, "a line that process 1 writes to the journal has no term")
    story = simple()
    story.fact(7, 1, "odd")
    assert_broken(story, "has the kind 'odd'")


def test_terms_increase() -> None:
    story = successor()
    story.events = [
        e for e in story.events if not (isinstance(e, Wrote) and e.process == 3 and e.file == "journal.jsonl")
    ]
    story.fact(21, 3, "formed", number=2, term=1)
    story.fact(25, 3, "ended", code=0, term=1)
    assert_broken(story, "process 3 writes lines of term 1 to the journal, process 1 those of term 1")


def without_facts(story: Story, kind: str) -> Story:
    word = f'"{kind}"'.encode()
    story.events = [e for e in story.events if not (isinstance(e, Wrote) and word in e.content)]
    return story


def test_the_journal_has_generations_and_the_end() -> None:
    assert_broken(without_facts(simple(), "formed"), "generation 1 begins, and the journal does not have it")
    assert_broken(without_facts(simple(), "ended"), "process 1 ends with 0: not in the journal")


def test_state_json_has_the_end() -> None:
    story = simple()
    story.files["state.json"] = b"{}"
    assert_broken(story, "process 1 ends with 0, and leaves state.json")
    story = stopped(6, kept=7)
    story.files["state.json"] = b'{"end": {"code": 15}}'
    assert_broken(story, "process 1 ends with 143, and state.json does not have it")


def test_the_result_is_right() -> None:
    story = restarted()
    story.files["result.json"] = b'{"steps": 9, "generations": 1}'
    assert_broken(story, "result.json has 9 steps, and the job 10")
    assert_broken(story, "result.json has 1 generations, and the last one was 2")


def test_all_tasks_end_as_the_chief() -> None:
    def story(end: float, code: int) -> Story:
        story = simple()
        story.events = [e for e in story.events if e.at < 7]
        done(story, 20, 1, 2)
        story.events = [e for e in story.events if not (isinstance(e, Exited) and e.process == 2)]
        story.exit(end, 2, code)
        story.log(end, 2, "no contact with the chief")
        return story

    assert story(22, 0).found() == []
    assert_broken(story(50, 0), "50.0 s: worker:1: process 2 ends with 0: the chief ended with 0 at 21.0 s")
    assert_broken(story(22, 15), "22.0 s: worker:1: process 2 ends with 15: the chief ended with 0 at 21.0 s")


def test_a_task_whose_place_is_taken_ends() -> None:
    story = successor()
    story.events = [e for e in story.events if not (isinstance(e, Exited) and e.process == 1)]
    story.exit(250, 1, 20)
    assert_broken(story, "worker:0: process 1 still runs: process 3 has its place since 6.0 s")


def test_a_job_survives_few_faults() -> None:
    def story(code: int) -> Story:
        story = begun(max_restarts=2)
        crash(story, 3, 2)
        story.end(3, 1)
        story.fact(4, 1, "ended", code=code)
        story.wrote(4, 1, "state.json", end={"code": code})
        story.log(4, 1, "worker:1 was killed")
        story.exit(5, 1, code)
        story.exit(5, 2, code)
        return story

    assert_broken(story(14), "process 1 ends with 14, after 1 faults and 0.0 s of absence")
    many = story(14)
    for at in (1.0, 1.5):
        many.fault("crash", at, at, "worker:1")
    assert not any("of absence" in line for line in many.found())
    assert restarted().found() == []


def test_an_error_is_one_line() -> None:
    story = simple()
    story.log(7, 1, "model_dir: is full: make room")
    assert story.found() == []
    story.log(7.1, 1, "model_dir\nis full")
    assert_broken(story, "process 1 logs an error that is not one line")
    story.log(7.2, 1, "Traceback (most recent call last):", error=False)
    assert_broken(story, "7.2 s: worker:0: process 1 logs a traceback")


def test_a_failure_has_a_line() -> None:
    story = failed(10, "worker:1 is missing")
    story.events = [e for e in story.events if not (isinstance(e, Logged) and e.error)]
    assert_broken(story, "process 1 ends with 10 without an error line")


def test_a_task_goes_on_without_a_standby_after_three_have_failed() -> None:
    def story(standbys: int) -> Story:
        story = simple()
        for number in range(standbys):
            story.child(2.1 + number, 1, 10 + number)
            story.end(2.5 + number, 10 + number, "itself", 1)
        return story

    assert story(3).found() == []
    assert_broken(story(4), "process 1 starts another standby, child 13, after three have failed")


def test_an_audit_is_fast() -> None:
    history = restarted().history
    begin = time.perf_counter()
    for _ in range(100):
        audit(history)
    assert (time.perf_counter() - begin) / 100 < 0.01
