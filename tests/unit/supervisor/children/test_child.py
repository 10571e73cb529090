"""A real child: that of a ps, which starts without TensorFlow's Python and serves graphs until it is killed."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from trainer.job import environment
from trainer.job.cluster import Task, tasks_of
from trainer.job.load import build
from trainer.protocol.child import ChildStatus
from trainer.protocol.events import (
    Done,
    EpochEnd,
    Event,
    Failed,
    Finishing,
    Line,
    PeerLost,
    Saved,
    Start,
    Step,
    Stopped,
    Trained,
    Warm,
)
from trainer.protocol.facts import Cause, Loss
from trainer.supervisor.children.child import Child, Exited
from trainer.supervisor.children.process import Process

T = TypeVar("T")

SPEC = build({"name": "j", "strategy": "parameter_server", "tasks": {"worker": 1, "ps": 1}})


def ps_task() -> Task:
    with contextlib.ExitStack() as stack:
        ports = {
            t: stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for t in ("chief", "worker", "ps")
        }
    return tasks_of(SPEC, lambda task_type, _: f"127.0.0.1:{ports[task_type]}")[-1]


class Watched:
    """A child and its events, to wait for."""

    def __init__(self) -> None:
        self.events: list[Event | Exited] = []
        self._news = asyncio.Event()

    def take(self, _: Child, event: Event | Exited) -> None:
        self.events.append(event)
        self._news.set()

    async def until(self, kind: type[T]) -> T:
        while True:
            for event in self.events:
                if isinstance(event, kind):
                    return event
            self._news.clear()
            await self._news.wait()


@contextlib.asynccontextmanager
async def started(task: Task, log: Path) -> AsyncIterator[tuple[Child, Watched]]:
    watched = Watched()
    child = await Child.start(task, log, {}, watched.take)
    try:
        yield child, watched
    finally:
        child.kill()
        await child.ended()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.JOB, SPEC.model_dump_json())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "ps-0.log"


def run(scenario: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_it_reports_that_it_is_warm_waits_for_the_order_and_then_serves(log: Path) -> None:
    async def scenario() -> None:
        task = ps_task()
        async with started(task, log) as (child, watched):
            await watched.until(Warm)
            assert (child.warm, child.alive, child.generation) == (True, True, 0)
            assert child.status == ChildStatus(child_pid=child.status.child_pid)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(task.address or ("", 0))
            child.go(3, 500)
            line = (
                "task=ps:0 strategy=parameter_server workers=1 ps=1 replicas_in_sync=1 global_batch=64 per_replica=64"
            )
            assert await watched.until(Start) == Start(line=f"{line} resume_step=500")
            assert child.generation == 3
            socket.create_connection(task.address or ("", 0)).close()

    run(scenario())


def test_it_is_warm_within_a_second_of_cpu(log: Path) -> None:
    async def scenario() -> None:
        async with started(ps_task(), log) as (child, watched):
            await watched.until(Warm)
            user, system = Path(f"/proc/{child.status.child_pid}/stat").read_text().split()[13:15]
            assert int(user) + int(system) < 100, "ticks of 10 ms"

    run(scenario())


@pytest.mark.parametrize("starved", [False, True])
def test_a_child_without_a_sign_of_life_hangs_unless_it_waits_for_a_cpu(
    starved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its threads one never gets the CPU from 15 s on, and the others need none."""
    now = 100.0
    child = Child(ps_task(), lambda *_: None, lambda: now)
    child._process = Process()
    monkeypatch.setattr(Process, "waits_for_cpu", lambda _: {"1": 5.0, "2": max(0.0, now - 115.0) if starved else 0.0})
    hangs = {}
    for seconds in (10, 16, 29, 31, 60):
        now = 100.0 + seconds
        hangs[seconds] = child.hangs(30)
    assert hangs == {10: False, 16: False, 29: False, 31: not starved, 60: not starved}
    if starved:  # it gets a CPU again, and says nothing
        monkeypatch.setattr(Process, "waits_for_cpu", lambda _: {"1": 5.0, "2": 45.0})
        now = 100.0 + 90
        assert child.hangs(30)
    child.last_sign = now
    assert not child.hangs(30)
    child._process.close()


def test_signs_of_life_are_noted_and_are_no_events(log: Path) -> None:
    async def scenario() -> None:
        async with started(ps_task(), log) as (child, watched):
            await watched.until(Warm)
            first = child.last_sign
            assert first <= time.monotonic()
            while child.last_sign == first:
                await asyncio.sleep(0.05)
            assert watched.events == [Warm()]

    run(scenario())


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGKILL, "SIGKILL"), (signal.SIGSEGV, "SIGSEGV")],
)
def test_why_it_ended_when_a_signal_killed_it(log: Path, number: signal.Signals, name: str) -> None:
    async def scenario() -> None:
        async with started(ps_task(), log) as (child, watched):
            await watched.until(Warm)
            child._process.send(number)
            await child.ended()
            assert (child.alive, child.exit) == (False, -number)
            assert child.loss() == Loss(Cause.KILLED, signal=name)
            assert str(child.loss()) == f"killed by {name}"
            assert watched.events[-1] == Exited()

    run(scenario())


def test_why_it_ended_when_we_killed_it_is_our_reason(log: Path) -> None:
    async def scenario() -> None:
        async with started(ps_task(), log) as (child, _):
            child.kill(child.silence(30))
            await child.ended()
            assert child.loss() == Loss(Cause.HANG, seconds=30)
            assert str(child.loss()) == "no sign of life for 30 s"
            child.kill(Loss(Cause.NO_CONTACT))
            assert child.loss() == Loss(Cause.HANG, seconds=30)

    run(scenario())


def test_an_error_is_reported_before_the_child_ends(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.JOB, "{}")

    async def scenario() -> None:
        async with started(ps_task(), log) as (child, watched):
            await child.ended()
            assert watched.events[1:] == [Exited()]
            error = await watched.until(Failed)
            assert error.code == 2
            assert "TRAINER_JOB: name: null: is required" in error.message
            assert (child.exit, child.loss()) == (2, Loss(Cause.ERROR, error=error.message, code=2))
            assert str(child.loss()) == "; ".join(error.message.splitlines())

    run(scenario())


def test_a_port_that_is_taken_is_reported(log: Path) -> None:
    async def scenario() -> None:
        task = ps_task()
        assert task.address
        async with started(task, log) as (child, watched):
            with socket.create_server(task.address):
                child.go(1, 0)
                error = await watched.until(Failed)
                await child.ended()
        port = task.address[1]
        assert (error.code, child.exit) == (2, 2)
        reported = f"port {port} (TensorFlow port of ps:0) cannot be used: Address already in use; "
        assert error.message.startswith(f"{reported}stop process {os.getpid()} (")

    run(scenario())


def test_its_stderr_is_kept_in_the_log_after_what_was_there(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.JOB, "{}")
    log.write_text("before\n")

    async def scenario() -> None:
        async with started(ps_task(), log) as (child, _):
            await child.ended()

    run(scenario())
    text = log.read_text()
    assert text.startswith("before\nTraceback (most recent call last):\n")
    assert "UserError: TRAINER_JOB" in text


def test_orders_after_its_end_do_no_harm(log: Path) -> None:
    async def scenario() -> None:
        async with started(ps_task(), log) as (child, _):
            child.kill()
            await child.ended()
            child.go(2, 0)
            child.stop()
            child.finalise(3, True)
            await child.ended()

    run(scenario())


# Events of a child, and the status and result that they become.
EVENTS: list[tuple[list[Event], dict[str, Any], Done | None]] = [
    ([Step(5, figures={"loss": 1}), Step(6)], {"step": 6, "figures": {"loss": 1}}, None),
    (
        [Step(5), Saved(4, 0.1)],
        {"step": 5, "last_checkpoint": 4, "seconds_saving": 0.1},
        None,
    ),
    ([Start(0, 100, "task=worker:0")], {"step": 0, "steps": 100, "line": "task=worker:0"}, None),
    ([Step(7), Stopped(8)], {"step": 8, "stopped_well": True}, None),
    ([Trained()], {"trained": True}, None),
    ([Finishing(), Done(9)], {"finishing": True}, Done(9)),
    ([PeerLost("UnavailableError: x")], {"peer_lost": "UnavailableError: x"}, None),
    ([Line("x")], {}, None),
]


@pytest.mark.parametrize(("events", "status", "result"), EVENTS)
def test_events_of_a_child_are_kept(events: list[Event], status: dict[str, Any], result: Done | None) -> None:
    watched: list[Event | Exited] = []
    child = Child(tasks_of(SPEC)[0], lambda _, event: watched.append(event))
    for event in events:
        child._take(event)
    assert (child.status.known(), child.result, watched) == (status, result, events)


def test_a_status_stays_small_with_any_number_of_metrics() -> None:
    child = Child(tasks_of(SPEC)[0], lambda *_: None)
    figures = {f"metric_{number}": 0.123456789 for number in range(30_000)}
    child._take(Step(5, {}, {"loss": 1, **figures, "examples_per_second": 9.0}))
    assert len(json.dumps(child.status.known())) < 10_000
    assert {"loss", "metric_0", "metric_99", "examples_per_second"} <= child.status.figures.keys()
    assert child.status.step == 5


def test_figures_of_a_user_with_our_names_are_the_user_s() -> None:
    child = Child(tasks_of(SPEC)[0], lambda *_: None)
    figures: dict[str, object] = {"finishing": 0.5, "peer_lost": 1, "figures": 2, "mine": 0.25}
    child._take(Step(5, {"worker:0": {"step": 3, "loss": 0.5}}, figures))
    assert child.status == ChildStatus(step=5, figures=figures)
    assert child.workers == {"worker:0": ChildStatus(step=3, figures={"loss": 0.5})}


def stepping(steps: int | None = None, seconds: float = 1.0) -> tuple[Child, list[float]]:
    """A child that makes a step each second, or so many, and its clock."""
    now = [100.0]
    child = Child(tasks_of(SPEC)[0], lambda *_: None, lambda: now[0])
    child._take(Start(0, steps))
    for step in range(1, 21):
        now[0] += seconds
        worker = {"step": step, "examples_per_second": 32.0}
        child._take(Step(step, {"worker:0": worker}, {"loss": 0.5, "examples_per_second": 64.0}))
    return child, now


def rates(child: Child) -> tuple[float | None, float | None]:
    return child.current().examples_per_second, child.current_workers()["worker:0"].examples_per_second


def test_without_a_new_step_the_rate_falls_once_that_is_unusual() -> None:
    child, now = stepping()
    now[0] += 5
    assert (child.without_step, rates(child)) == (0, (64, 32))
    now[0] += 45
    assert (child.without_step, rates(child)) == (50, (6.4, 3.2))
    assert child.current().loss == 0.5
    child._take(Step(21, None, {"examples_per_second": 64.0}))
    assert (child.without_step, rates(child)) == (0, (64, 32))


def test_steps_that_take_long_may_take_three_times_as_long() -> None:
    child, now = stepping(seconds=20)
    now[0] += 60
    assert child.without_step == 0
    now[0] += 1
    assert child.without_step == 61
    child._take(Step(21))
    now[0] += 60
    assert child.without_step == 0, "the usual time is not that of the one standstill"


def test_a_child_that_evaluates_or_has_made_all_steps_owes_none() -> None:
    pauses: list[Event] = [EpochEnd(False), Finishing("evaluating"), Trained()]
    for event in pauses:
        child, now = stepping()
        child._take(event)
        now[0] += 50
        assert (child.without_step, child.slowness) == (0, 1), event
    child, now = stepping(steps=20)
    now[0] += 50
    assert child.without_step == 0
    child, now = stepping()
    child._take(EpochEnd(False))
    now[0] += 50
    child._take(EpochEnd(True))
    now[0] += 4
    assert child.without_step == 0


def test_before_two_steps_nothing_is_usual() -> None:
    child = Child(tasks_of(SPEC)[0], lambda *_: None, iter(range(0, 1000, 100)).__next__)
    child._take(Step(1))
    assert child.without_step == 0


def test_a_lost_peer_is_the_reason_for_its_end() -> None:
    child = Child(tasks_of(SPEC)[0], lambda *_: None)
    child.exit = 1
    assert child.loss() == Loss(Cause.EXITED, status=1)
    assert str(child.loss()) == "exited by itself with code 1, without a Python error"
    child._take(PeerLost("UnavailableError: x"))
    assert child.loss() == Loss(Cause.PEER_LOST, "UnavailableError: x", blames_peer=True)
    assert str(child.loss()) == "UnavailableError: x"
    child._take(PeerLost("x (stopped sending heartbeats)", 2, "mine.py:3: x"))
    assert child.loss() == Loss(
        Cause.PEER_SILENT, "x (stopped sending heartbeats)", "mine.py:3: x", code=2, blames_peer=True
    )
