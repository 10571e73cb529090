"""Silence counts only while the process was running, and no duration depends on the wall clock."""

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from aiohttp import ClientSession

from trainer import clocks, host
from trainer.job import environment
from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.model_dir import state as job_state
from trainer.protocol.facts import Cause, Loss, Note
from trainer.supervisor import restart_guard
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.children.child import Child
from trainer.supervisor.children.process import Process
from trainer.supervisor.task.agent import Agent
from trainer.supervisor.task.clock import BEAT_SECONDS, LONGEST_GAP, ListeningClock
from trainer.supervisor.task.task_report import make_report

LOST = 3.0


class Times:
    """The time by a monotonic clock and by one on the wall, which may step."""

    def __init__(self) -> None:
        self.now, self.wall = 1000.0, 1.7e9

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.wall

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds


@pytest.fixture
def times() -> Times:
    return Times()


def test_time_during_which_the_process_was_suspended_does_not_count(times: Times) -> None:
    clock = ListeningClock(times.monotonic)
    begun = clock()
    for _ in range(10):
        times.pass_(BEAT_SECONDS)
        clock()
    assert clock() - begun == 10 * BEAT_SECONDS
    times.pass_(12)
    assert clock() - begun == 10 * BEAT_SECONDS + LONGEST_GAP
    times.pass_(BEAT_SECONDS)
    assert clock() - begun == 11 * BEAT_SECONDS + LONGEST_GAP


@pytest.fixture
def chief(tmp_path: Path, times: Times, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chief]:
    """A chief of two workers that run."""
    monkeypatch.setattr(clocks, "wall", times.time)
    deadlines = {"task_lost": LOST, "start": 20, "rejoin": 20, "progress": 20}
    spec = build(
        {
            "name": "j",
            "strategy": "multi_worker_mirrored",
            "tasks": {"worker": 2},
            "model_dir": str(tmp_path),
            "deadlines": deadlines,
        }
    )
    agent = Agent(spec, tasks_of(spec)[0], Path(os.devnull))
    agent.clock = ListeningClock(times.monotonic)
    chief = Chief(agent)
    chief._ready.set()
    yield chief
    chief._record.lock.close()


def form(chief: Chief) -> None:
    own = make_report(chief._agent)
    for report in (own, replace(own, task="worker:1", incarnation="another")):
        chief._rendezvous.report(report, chief._clock())
        chief._rendezvous.reachable(report.task, report.incarnation, None, chief._clock())
    assert chief._rendezvous.phase == "running"


def beat(chief: Chief, times: Times, seconds: float) -> None:
    """As its loop does, without a word from the other."""
    for _ in range(round(seconds / BEAT_SECONDS)):
        times.pass_(BEAT_SECONDS)
        now = chief._clock()
        chief._rendezvous.report(replace(make_report(chief._agent), generation=1), now)
        chief._rendezvous.tick(now)


def test_a_chief_that_was_suspended_declares_no_task_lost(chief: Chief, times: Times) -> None:
    form(chief)
    for seconds in (4 * LOST, 1000.0):  # beyond every deadline
        times.pass_(seconds)
        beat(chief, times, 1)
        assert chief._rendezvous.phase == "running"
        worker = chief._rendezvous.tasks.members["worker:1"].report
        asyncio.run(chief.answer(replace(worker, generation=1), 0))
    beat(chief, times, LOST)
    assert chief._rendezvous.phase == "running"
    assert not chief._rendezvous.chronicle.events[1:]
    beat(chief, times, 1)
    assert chief._rendezvous.chronicle.events[-1].text == "worker:1 lost (silent for 3 s), re-forming"


def test_a_chief_suspended_while_the_cluster_forms_keeps_waiting(chief: Chief, times: Times) -> None:
    times.pass_(1000)
    beat(chief, times, 10)
    assert chief._rendezvous.phase == "forming"
    beat(chief, times, 20)
    assert chief._rendezvous.code is Exit.MISSING


def test_a_suspended_supervisor_does_not_consider_its_child_hung(times: Times, tmp_path: Path) -> None:
    spec = build({"name": "j", "strategy": "one_device", "deadlines": {"hang": 5}})
    agent = Agent(spec, tasks_of(spec)[0], tmp_path / "log")
    agent.clock = ListeningClock(times.monotonic)

    async def run() -> list[Loss | None]:
        child = agent.running = Child(agent.task, agent._on_child, agent.clock)
        child.kill = lambda why=None: setattr(child, "killed_for", why)  # type: ignore[method-assign]
        child._order = lambda order: None  # type: ignore[method-assign]
        child._process = Process()
        child._process.waits_for_cpu = dict  # type: ignore[method-assign]
        child.warm, killed = True, list[Loss | None]()
        times.pass_(40)
        await agent.look_after_children()
        killed.append(child.killed_for)
        for _ in range(10):  # the chief takes the stacks of all tasks meanwhile
            times.pass_(1)
            await agent.look_after_children()
        child._process.close()
        return [*killed, child.killed_for]

    assert asyncio.run(run()) == [None, Loss(Cause.HANG, seconds=5)]


def test_progress_is_kept_for_a_chief_that_is_killed(chief: Chief, times: Times, tmp_path: Path) -> None:
    agent = chief._agent
    times.pass_(1e6)  # stood still: its clock and the machine's differ from here on
    form(chief)
    child = agent.running = Child(agent.task, agent._on_child, agent.clock)
    child.generation = 1

    async def saved(step: int, seconds: float) -> None:
        child.status.step = step
        while (state := job_state.load(str(tmp_path), 0)).step != step:
            times.pass_(seconds)
            child.last_sign = agent.clock()
            await asyncio.sleep(0.05)
        assert (state.generation, state.generations_without_progress) == (1, 0)

    async def run() -> None:
        lead = asyncio.create_task(chief._lead(cast(ClientSession, None)))
        # At once: else a killed chief would count the generation as one without progress.
        await asyncio.wait_for(saved(5, 0), 10)
        worker = chief._rendezvous.tasks.members["worker:1"]
        worker.seen = chief._clock() + 1000
        await asyncio.wait_for(saved(7, 1), 20)
        lead.cancel()

    asyncio.run(run())


# The wall. ----------------------------------------------------------------------------------------


def test_each_event_is_printed_once_whatever_the_wall_clock_does(
    chief: Chief, times: Times, capsys: pytest.CaptureFixture[str]
) -> None:
    form(chief)
    chief._announce()
    for number, step in enumerate([-3600, 0, 7200, -1e6]):
        times.wall += step
        chief._rendezvous.note(Note(f"event {number}"))
        chief._announce()
    for number in range(60):
        chief._rendezvous.note(Note(f"late {number}"))
    chief._announce()
    chief._announce()
    reported = capsys.readouterr().out.splitlines()
    assert reported == [
        "generation 1 formed: 2 tasks", *(f"event {n}" for n in range(4)), *(f"late {n}" for n in range(60)),
    ]  # fmt: skip


def test_durations_are_the_same_whatever_the_wall_clock_does(chief: Chief, times: Times) -> None:
    before = chief.status().seconds
    for step in (-1e8, 1e8, -5000):
        times.wall += step
        assert 0 <= chief.status().seconds - before < 60


@pytest.mark.parametrize("started", [0.0, 1.7e9 - 100, 1.7e9 + 1e6])
def test_a_restarted_chief_counts_on_and_never_below_its_own_age(
    tmp_path: Path, times: Times, monkeypatch: pytest.MonkeyPatch, started: float
) -> None:
    monkeypatch.setattr(clocks, "wall", times.time)
    job_state.save(str(tmp_path), job_state.State(generation=3, started=started))
    spec = build({"name": "j", "strategy": "one_device", "model_dir": str(tmp_path)})
    chief = Chief(Agent(spec, tasks_of(spec)[0], Path(os.devnull)))
    seconds = chief.status().seconds
    assert seconds >= max(0, times.wall - started)
    chief._record.lock.close()


def test_a_chief_restarted_on_its_machine_counts_on_whatever_the_wall_clock_does(
    tmp_path: Path, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "wall", times.time)
    begun = time.monotonic()
    spec = build({"name": "j", "strategy": "one_device", "model_dir": str(tmp_path)})
    for step in (0.0, 1e6, -3e6):
        times.wall += step
        chief = Chief(Agent(spec, tasks_of(spec)[0], Path(os.devnull)))
        age = host.process_age()
        assert age <= chief.status().seconds + 1
        assert chief.status().seconds <= age + time.monotonic() - begun + 1
        chief._record.save(chief._rendezvous.generation)
        chief._record.lock.close()


def test_a_failure_is_recent_whatever_the_wall_clock_does(
    tmp_path: Path, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "wall", times.time)
    monkeypatch.setenv(environment.RESTARTS, "9")
    log = tmp_path / "worker-1.log"
    restart_guard.remember(log, Exit.USER)
    for step in (1e6, -2e6, 1e6):
        times.wall += step
        assert restart_guard.repeat_failure(log) is Exit.USER
