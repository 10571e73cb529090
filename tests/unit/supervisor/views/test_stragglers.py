"""Which task is named as slow, in jobs that are simulated step by step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.protocol.child import measured
from trainer.protocol.status import Straggler, TaskRow
from trainer.supervisor.views import stragglers
from trainer.supervisor.views.stragglers import Stragglers

SECONDS = 30.0
"""Within which a slow task is to be named."""


@dataclass
class Task:
    """What a step of it takes, from the time at which it begins."""

    input: Callable[[float], float] = lambda _: 0.003
    compute: Callable[[float], float] = lambda _: 0.1
    exchange: Callable[[float], float] = lambda _: 0.01
    totals: dict[str, float] = field(default_factory=dict)
    now: float = 0.0

    def row(self, generation: int = 1) -> TaskRow:
        return TaskRow(state="running", generation=generation, **vars(measured(self.totals)))

    def add(self, waited: float, compute: float, exchange: float) -> None:
        values = {"input": waited, "compute": compute, "exchange": exchange, "wait": 0.001}
        self.totals["steps_made"] = self.totals.get("steps_made", 0) + 1
        for part, seconds in values.items():
            self.totals[f"seconds_{part}"] = self.totals.get(f"seconds_{part}", 0.0) + seconds


def always(seconds: float) -> Callable[[float], float]:
    return lambda _: seconds


def since(begin: float, seconds: float, before: float) -> Callable[[float], float]:
    return lambda now: seconds if now >= begin else before


def noisy(seconds: float, seed: int, spread: float = 0.3) -> Callable[[float], float]:
    chance = random.Random(seed)
    return lambda _: seconds * chance.lognormvariate(0, spread)


def in_sync(tasks: Mapping[str, Task], begin: float = 0.0) -> Iterator[float]:
    """Makes steps that end together, as soon as all tasks are there and the network is done; yields the time."""
    now = begin
    while True:
        spent = {name: (task.input(now), task.compute(now)) for name, task in tasks.items()}
        end = now + max(map(sum, spent.values())) + max(task.exchange(now) for task in tasks.values())
        for name, task in tasks.items():
            task.add(*spent[name], end - now - sum(spent[name]))
        now = end + 0.001
        yield now


def alone(tasks: Mapping[str, Task], begin: float = 0.0) -> Iterator[float]:
    """Makes steps of ps-workers, which wait for no other."""
    clock = dict.fromkeys(tasks, begin)
    while True:
        name = min(clock, key=lambda each: clock[each])
        task, now = tasks[name], clock[name]
        spent = task.input(now), task.compute(now), task.exchange(now)
        task.add(*spent)
        clock[name] += sum(spent) + 0.001
        yield min(clock.values())


@dataclass
class Watched:
    """A job that the chief looks at."""

    tasks: dict[str, Task]
    steps: Callable[..., Iterator[float]] = in_sync
    now: float = 0.0
    generation: int = 1
    notes: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = Stragglers(self.steps is in_sync)

    @property
    def straggler(self) -> Straggler | None:
        return self.watch.straggler

    def run(self, seconds: float) -> Watched:
        until = self.now + seconds
        for now in self.steps(self.tasks, self.now):
            self.now = now
            if self.watch.due(now):
                rows = {name: task.row(self.generation) for name, task in self.tasks.items()}
                if text := self.watch.look(rows, now):
                    self.notes.append((now, text))
            if now >= until:
                break
        return self

    def named(self) -> tuple[str, str] | None:
        return (self.straggler.task, self.straggler.cause) if self.straggler else None


def workers(count: int = 3) -> dict[str, Task]:
    return {f"worker:{i}": Task() for i in range(count)}


def test_a_task_that_waits_for_its_data_is_named() -> None:
    tasks = workers()
    tasks["worker:1"].input = since(60, 0.18, 0.003)
    job = Watched(tasks).run(59)
    assert job.named() is None
    job.run(SECONDS)
    assert job.straggler == Straggler(
        "worker:1",
        "input",
        "worker:1 is slow: its steps wait 180 ms for data, the others' 3 ms; the others wait for it 61 % of their time",
    )
    (note,) = job.notes
    assert note[1].startswith("worker:1 is slow: its steps wait ")


@pytest.mark.parametrize("count", [2, 3, 8])
def test_a_task_that_computes_slowly_is_named(count: int) -> None:
    tasks = workers(count)
    tasks["worker:0"].compute = since(60, 0.2, 0.1)
    job = Watched(tasks).run(60 + SECONDS)
    assert job.named() == ("worker:0", "compute")
    assert job.straggler is not None
    assert "its steps compute for 200 ms, the others' for 100 ms; the others wait for it 4" in job.straggler.text


@pytest.mark.parametrize("slow", ["input", "compute"])
def test_a_task_that_is_slow_from_the_first_step_is_named(slow: str) -> None:
    tasks = workers()
    setattr(tasks["worker:2"], slow, always(0.3))
    assert Watched(tasks).run(SECONDS).named() == ("worker:2", slow)


def test_slow_steps_are_compared_over_a_longer_window() -> None:
    tasks = workers()
    for task in tasks.values():
        task.compute = always(12.0)
    tasks["worker:2"].input = always(15.0)
    assert Watched(tasks).run(150).named() == ("worker:2", "input")


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(2, 6), spread=st.floats(0, 0.5), step=st.floats(0.0005, 2))
def test_of_tasks_that_are_alike_none_is_named(seed: int, count: int, spread: float, step: float) -> None:
    """Though each step has a slowest one, and one task has a fifth more to do, as the chief."""
    tasks = workers(count)
    for i, task in enumerate(tasks.values()):
        task.compute = noisy(step * (1.15 if i == 0 else 1.0), seed + i, spread)
        task.input = noisy(step / 5, seed + 100 + i, spread)
    assert Watched(tasks).run(max(60.0, 40 * step)).notes == []


def test_if_all_wait_for_data_alike_none_is_named() -> None:
    tasks = workers()
    for i, task in enumerate(tasks.values()):
        task.input = noisy(0.5, i)
    job = Watched(tasks).run(60)
    assert job.notes == []
    assert all((each.input or 0) > 0.5 for each in job.watch.shares.values())


def test_a_slow_network_is_no_task_of_those_in_sync() -> None:
    """All of them exchange for long, whichever connection is slow."""
    tasks = workers()
    tasks["worker:1"].exchange = always(1.0)
    job = Watched(tasks).run(60)
    assert job.notes == []
    for each in job.watch.shares.values():
        assert each.network == pytest.approx(1.0 / 1.104, abs=0.01)
        assert each.wait == pytest.approx(0.0, abs=0.01)


@settings(max_examples=30, deadline=None)
@given(begin=st.floats(0, 60), pause=st.floats(0.1, 15))
def test_one_pause_is_no_slow_task(begin: float, pause: float) -> None:
    """As that of a garbage collection, or of a machine that is moved."""
    tasks = workers()
    paused: list[float] = []

    def compute(now: float) -> float:
        if now >= begin and not paused:
            paused.append(now)
            return pause
        return 0.1

    tasks["worker:1"].compute = compute
    assert Watched(tasks).run(90).notes == []


def test_a_task_that_pauses_again_and_again_is_named() -> None:
    tasks, last = workers(), [0.0]

    def compute(now: float) -> float:
        if now < last[0] + 3:
            return 0.1
        last[0] = now
        return 1.5

    tasks["worker:1"].compute = compute
    assert Watched(tasks).run(90).named() == ("worker:1", "compute")


def test_a_new_generation_is_compared_anew() -> None:
    tasks = workers()
    tasks["worker:1"].compute = always(0.3)
    job = Watched(tasks).run(60)
    assert job.named() == ("worker:1", "compute")
    job.generation += 1
    for task in tasks.values():
        task.totals.clear()
    tasks["worker:1"].compute = always(0.1)
    job.run(stragglers.FIRST_SECONDS / 2)
    assert job.named() is None
    assert all(0 <= (each.compute or 0) <= 1 for each in job.watch.shares.values())
    job.run(60)
    assert [text for _, text in job.notes][1:] == ["worker:1 is no longer slow"]


def test_totals_that_begin_again_begin_a_new_window() -> None:
    first = stragglers.Sample(0.0, 1, 10, 1.0, 1.0, 1.0, 0.0)
    assert stragglers.kept([first], first._replace(time=2.0, steps=20, compute=2.0)) != [first]
    for again in (
        first._replace(steps=9),
        first._replace(steps=11, compute=0.5),
        first._replace(steps=20, generation=2),
    ):
        assert stragglers.kept([first], again) == [again]
    assert stragglers.kept([first], first._replace(time=9.0)) == [first], "no new steps"
    assert stragglers.kept([first], None) == []


def test_tasks_without_figures_and_late_ones_are_left_out() -> None:
    tasks = workers(4)
    del tasks["worker:3"]
    tasks["worker:1"].input = always(0.3)
    job = Watched(tasks)
    job.run(30)
    rows = {name: task.row() for name, task in tasks.items()}
    rows |= {"ps:0": TaskRow(state="running"), "worker:3": TaskRow(state="absent")}
    late = measured({"steps_made": "many", "seconds_compute": True})
    rows["worker:4"] = TaskRow(state="running", generation=1, **vars(late))
    job.watch.look(rows, job.now + 2)
    assert job.named() == ("worker:1", "input")
    assert job.watch.shares.keys() == tasks.keys()
    tasks["worker:3"] = Task(compute=always(5.0))
    job.run(8)
    assert job.named() == ("worker:1", "input")
    del tasks["worker:1"], tasks["worker:3"]
    job.run(30)
    assert job.named() is None


def test_it_is_noted_once_and_when_it_changes_and_when_it_is_over() -> None:
    tasks = workers()
    tasks["worker:1"].input = lambda now: 0.3 if now < 100 else 0.003
    tasks["worker:1"].compute = lambda now: 0.6 if 100 <= now < 300 else 0.1
    tasks["worker:2"].compute = since(220, 1.5, 0.1)
    job = Watched(tasks).run(450)
    what = [text.partition(";")[0] for _, text in job.notes]
    assert what[0] == "worker:1 is slow: its steps wait 300 ms for data, the others' 3 ms"
    assert what[1].startswith("worker:1 is slow: its steps compute for ")
    assert what[2].startswith("worker:2 is slow: its steps compute for ")
    assert len(what) == 3
    assert [begun <= when < begun + SECONDS for begun, (when, _) in zip((0, 100, 220), job.notes, strict=True)]
    tasks["worker:2"].compute = always(0.1)
    job.run(60)
    assert [text for _, text in job.notes[3:]] == ["worker:2 is no longer slow"]


def test_a_task_near_the_threshold_is_not_named_again_and_again() -> None:
    tasks = workers()
    for i, task in enumerate(tasks.values()):
        task.compute = noisy(0.1 * (stragglers.SLOW if i == 1 else 1), i, 0.1)
    assert len(Watched(tasks).run(1200).notes) <= 1


def test_of_several_slow_tasks_the_slowest_is_named_and_stays() -> None:
    tasks = workers(8)
    for i in (2, 5):
        tasks[f"worker:{i}"].compute = noisy(0.4, i, 0.2)
    job = Watched(tasks).run(300)
    assert job.straggler is not None
    assert job.straggler.task in ("worker:2", "worker:5")
    assert len(job.notes) == 1


def test_among_1000_tasks_the_slow_one_is_named() -> None:
    tasks = {f"worker:{i}": Task(compute=noisy(1.0, i)) for i in range(1000)}
    tasks["worker:700"].input = always(3.0)
    assert Watched(tasks).run(60).named() == ("worker:700", "input")


@pytest.mark.parametrize(
    ("slow", "text"),
    [
        ({"input": 0.2}, "its steps wait 200 ms for data, the others' 3 ms; a step takes it 310 ms, the others 113 ms"),
        ({"compute": 0.3}, "its steps compute for 300 ms, the others' for 100 ms"),
        # Its steps read the variables by the same connection.
        ({"exchange": 0.1, "compute": 0.2}, "its steps exchange values with the ps for 100 ms, the others' for 10 ms"),
    ],
    ids=["input", "compute", "network"],
)
def test_a_ps_worker_is_compared_by_all_of_its_steps(slow: dict[str, float], text: str) -> None:
    tasks = workers()
    for part, seconds in slow.items():
        setattr(tasks["worker:1"], part, always(seconds))
    job = Watched(tasks, alone).run(60)
    assert job.straggler is not None
    assert job.straggler.text.startswith(f"worker:1 is slow: {text}")
    assert len(job.notes) == 1


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), spread=st.floats(0, 0.6))
def test_of_ps_workers_that_are_alike_none_is_named(seed: int, spread: float) -> None:
    tasks = workers(4)
    for i, task in enumerate(tasks.values()):
        task.compute = noisy(0.1 * (1.25 if i == 0 else 1.0), seed + i, spread)
    job = Watched(tasks, alone).run(90)
    assert job.notes == []
    assert {each.wait for each in job.watch.shares.values()} == {0.0}


@pytest.mark.parametrize("lacking", ["seconds_exchange", "seconds_input"])
def test_without_all_parts_shares_are_unknown_and_no_task_is_named(lacking: str) -> None:
    """As with train.deterministic: who waits for whom cannot be told."""
    tasks = workers()
    tasks["worker:1"].compute = always(0.5)
    job = Watched(tasks)
    for now in in_sync(tasks):
        if job.watch.due(now):
            rows = {name: task.row() for name, task in tasks.items()}
            for row in rows.values():
                setattr(row, lacking, None)
            job.watch.look(rows, now)
        if now > 60:
            break
    assert job.named() is None
    for each in job.watch.shares.values():
        unknown = (each.wait, each.network) if lacking == "seconds_exchange" else (each.input,)
        assert unknown == (None,) * len(unknown)
        assert each.compute is not None


@given(seed=st.integers(0, 10**6), sync=st.booleans())
def test_whatever_tasks_report_shares_are_shares(seed: int, sync: bool) -> None:
    chance, watch = random.Random(seed), Stragglers(sync)
    odd: list[object] = [None, True, "many", 0, 2**62, 1e-300]
    names = ("steps_made", *(f"seconds_{part}" for part in ("input", "compute", "exchange", "wait")))
    for i in range(12):
        rows = {}
        for task in chance.sample("abcd", chance.randint(0, 4)):
            figures = {n: chance.choice(odd) if chance.random() < 0.1 else i * chance.uniform(0, 9) for n in names}
            rows[task] = TaskRow(state="running", generation=1, figures=figures)
        watch.look(rows, 5.0 * i)
        for found in watch.shares.values():
            known = [x for x in (found.input, found.compute, found.wait, found.network, found.between) if x is not None]
            assert all(0 <= each <= 1 for each in known)
            assert sum(known) == pytest.approx(1.0) or not sum(known)


@pytest.mark.parametrize(("tasks", "seconds"), [(3, 2.0), (1200, 2.0), (3000, 5.0)])
def test_samples_of_many_tasks_are_as_rare_as_their_reports(tasks: int, seconds: float) -> None:
    looks = Stragglers(in_sync=False)
    assert looks.due(0.0)
    looks.look({f"worker:{i}": TaskRow(state="running", figures={}) for i in range(tasks)}, 0.0)
    assert not looks.due(seconds - 0.1)
    assert looks.due(seconds)
