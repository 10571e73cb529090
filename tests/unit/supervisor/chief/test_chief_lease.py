"""The chief and its lease: it waits for one that still saves, and leaves everything to one that took its place."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.supervisor.ports import HOST, get
from trainer.job import environment
from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit, TrainerError
from trainer.job.load import build
from trainer.model_dir import checkpoint, journal, layout, lease
from trainer.model_dir import state as job_state
from trainer.model_dir.files import write_json
from trainer.model_dir.lease import Lease
from trainer.protocol.child import ChildStatus
from trainer.protocol.events import Done
from trainer.protocol.facts import Cause, Loss
from trainer.protocol.reports import Identity, Reply, Report
from trainer.supervisor.chief import lease_keeper
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.children.child import Child
from trainer.supervisor.control_port import peers, server
from trainer.supervisor.task import follower, task_report
from trainer.supervisor.task.agent import Agent

RUN = "a run"


def chief_of(folder: Path, port: int = 9000, **settings: Any) -> Chief:
    """A chief of one worker, alone, with a program.

    Args:
        port: the control port.
    """
    (folder / "log").touch()
    deadlines = {"stop": 20, **settings.pop("deadlines", {})}
    spec = build(
        {
            "name": "j",
            "strategy": "multi_worker_mirrored",
            "tasks": {"worker": 1},
            "program": ["sleep", "100"],
            "code": [],
            "model_dir": str(folder / "model"),
            "deadlines": deadlines,
            **settings,
        }
    )
    return Chief(Agent(spec, tasks_of(spec, lambda *_: f"{HOST}:{port - 1000}")[0], folder / "log"))


def write_lease(folder: Path, **fields: Any) -> Lease:
    found = Lease(**{"number": 5, "incarnation": "other", "run": RUN, "boot": "elsewhere", **fields})
    folder.mkdir(exist_ok=True)
    write_json(layout.lease(folder), asdict(found))
    return found


@contextlib.asynccontextmanager
async def leading(
    chief: Chief,
) -> AsyncIterator[tuple[asyncio.Task[Exit], Callable[[str], Awaitable[tuple[int, str]]]]]:
    """Runs a chief as `trainer task` does; gives its end, and a function that asks its control port."""
    task, agent = chief._task, chief._agent
    port = task.control_address(*task.chief)[1]
    beat = asyncio.create_task(agent.clock.run())
    identity = Identity("j", task.name, agent.incarnation)
    opened = await server.serve(
        port, HOST, identity, lambda: chief.status().document(), [server.report_route(chief.answer)]
    )
    async with peers.client() as session:
        yield asyncio.create_task(chief.run(session)), lambda path: get(session, port, path)
    beat.cancel()
    await opened.close()


@contextlib.asynccontextmanager
async def running(chief: Chief) -> AsyncIterator[None]:
    """Runs the chief's program and the guard of its lease, not the chief's loop."""
    beat = asyncio.create_task(chief._agent.clock.run())
    await chief._agent.act(Reply("running", 1, 0, 1))
    guard = asyncio.create_task(lease_keeper.keep(chief._record, chief._agent, chief._lose))
    try:
        yield
    finally:
        for each in (beat, guard):
            each.cancel()
        if (child := chief._agent.running) is not None and child.alive:
            child.kill()
            await child.ended()


def finish(what: Awaitable[Any]) -> Any:
    async def run() -> Any:
        return await asyncio.wait_for(what, 60)

    return asyncio.run(run())


async def until(what: Callable[[], object], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


# A chief that comes while the one before still saves. ---------------------------------------------


def test_a_new_chief_waits_until_the_one_before_has_saved_and_begins_with_what_it_kept(
    tmp_path: Path, free: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(environment.RUN, RUN)
    model_dir = tmp_path / "model"
    before = write_lease(model_dir, leaving=True)

    async def run() -> None:
        chief = chief_of(tmp_path, free)
        async with leading(chief) as (end, ask):
            for _ in range(5):
                lease.renew(str(model_dir), before)
                await asyncio.sleep(0.2)
            assert lease.read(str(model_dir)).incarnation == "other"
            assert (await ask("/healthz"))[0] == 200
            assert chief.status().phase == "forming"
            asked = asyncio.create_task(
                chief.answer(replace(task_report.make_report(chief._agent), task="worker:1"), 0)
            )
            await asyncio.sleep(0.2)
            assert not asked.done(), "it gives no orders yet"
            job_state.save(str(model_dir), job_state.State(generation=7, step=40))
            lease.release(str(model_dir), before)
            await until(lambda: lease.read(str(model_dir)).incarnation == chief._agent.incarnation)
            await until(lambda: chief._rendezvous.generation == 8)
            assert chief._rendezvous.term == chief._record.lease.number > 5
            kept = [line["text"] for line in journal.read(str(model_dir))]
            assert kept == [
                "worker:0 lost (its supervisor was restarted), re-forming", "generation 8 formed: 1 task",
            ]  # fmt: skip
            await asked
            chief._agent.leave()
            assert await end is Exit.STOPPED
            chief._record.lock.close()

    finish(run())
    assert "waiting: the chief before this one was asked to stop, and saves; at most 25 s" in capsys.readouterr().out


# A chief that is moved. ---------------------------------------------------------------------------


@pytest.mark.parametrize("moved", [True, False])
def test_a_chief_that_is_moved_leaves_its_job_to_the_next_one_and_one_that_is_stopped_ends_it(
    tmp_path: Path, free: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], moved: bool
) -> None:
    """By SIGTERM, on Kubernetes and elsewhere, which reaches the chief alone here."""
    monkeypatch.setenv(environment.RUN, RUN)
    if moved:
        monkeypatch.setenv(environment.HANDS_OVER, "1")
    model_dir = str(tmp_path / "model")

    async def lead(number: int) -> Reply:
        chief = chief_of(tmp_path, free, tasks={"worker": 2}, max_restarts=0, deadlines={"task_lost": 2})
        async with leading(chief) as (end, _):
            other = replace(task_report.make_report(chief._agent), task="worker:1", incarnation="other")
            await asyncio.wait_for(chief.answer(replace(other, number=1), 0), 5)
            chief._rendezvous.tasks.members["worker:1"].problem = None
            await until(lambda: chief._rendezvous.generation == number)
            chief._agent.leave()
            assert await end is Exit.STOPPED
            failed = Loss(Cause.ERROR, error="x", code=int(Exit.USER))  # for the next chief
            late = replace(other, number=2, ended_early=number, loss=failed)
            reply = await asyncio.wait_for(chief.answer(late, 0), 5)
            chief._record.lock.close()
            return reply

    for number in (1, 2, 3):  # none counts as a failure without progress: max_restarts is 0
        reply = finish(lead(number))
        assert (reply.phase, reply.code) == (("forming", 0) if moved else ("failed", Exit.STOPPED))
        state = job_state.load(model_dir, 0.0)
        assert (state.generation, state.end and state.end.code) == (number, Exit.STOPPED)
        then = "the other tasks wait for the next chief" if moved else "the same command starts the program again"
        assert then in capsys.readouterr().out
    texts = [line["text"] for line in journal.read(model_dir)]
    moves = texts.count("worker:0 was asked to stop, re-forming")
    assert (moves, state.restarts["asked_to_stop"]) == ((2, 2) if moved else (0, 0))
    assert any(str(text).startswith("stopped by a signal") for text in texts) is not moved


def test_a_program_that_does_not_resume_ends_with_its_chief(
    tmp_path: Path, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environment.HANDS_OVER, "1")

    async def run() -> None:
        chief = chief_of(tmp_path, free, resume="none")
        async with leading(chief) as (end, _):
            await until(lambda: chief._rendezvous.generation == 1)
            chief._agent.leave()
            assert await end is Exit.STOPPED
            chief._record.lock.close()

    finish(run())
    end = job_state.load(str(tmp_path / "model"), 0.0).end
    assert end is not None
    assert end.code == Exit.STOPPED


def test_it_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.RUN, RUN)
    monkeypatch.setattr(lease_keeper, "RELEASE_SECONDS", 0.5)
    before = write_lease(tmp_path / "model", leaving=True)

    async def run() -> None:
        chief = chief_of(tmp_path, deadlines={"stop": 1})
        beat = asyncio.create_task(chief._agent.clock.run())
        begun = time.monotonic()
        waiting = asyncio.create_task(lease_keeper.wait_for(chief._record.predecessor, chief._agent))
        while not waiting.done():
            lease.renew(str(tmp_path / "model"), before)
            await asyncio.sleep(0.1)
        assert 1.4 < time.monotonic() - begun < 5
        beat.cancel()

    finish(run())


def test_a_chief_that_is_stopped_while_it_waits_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.RUN, RUN)
    before = write_lease(tmp_path / "model", leaving=True)

    async def run() -> Exit:
        chief = chief_of(tmp_path)
        async with peers.client() as session:
            end = asyncio.create_task(chief.run(session))
            await asyncio.sleep(0.2)
            chief._agent.leave()
            return await end

    assert finish(run()) is Exit.STOPPED
    assert lease.read(str(tmp_path / "model")) == before


@pytest.mark.parametrize("other", [{}, {"leaving": True, "run": "another"}, {"leaving": True, "released": True}])
def test_it_does_not_wait_for_a_chief_that_was_not_asked_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    monkeypatch.setenv(environment.RUN, RUN)
    monkeypatch.setattr(lease, "FREE_SECONDS", 0.1)
    write_lease(tmp_path / "model", **other)
    chief = chief_of(tmp_path)
    assert not chief._record.waits
    assert chief._record.lease.number > 5
    chief._record.lock.close()


def test_a_chief_that_was_asked_to_stop_says_so_in_its_lease_until_it_has_ended_its_program(
    tmp_path: Path, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "RENEW_SECONDS", 60.0)  # at once, not at the next renewal

    async def run() -> Exit:
        chief = chief_of(tmp_path, free, program=["sh", "-c", "trap 'sleep 2; exit' TERM; while :; do sleep 0.1; done"])
        model_dir = str(tmp_path / "model")
        async with leading(chief) as (end, _):
            await until(lambda: chief._agent.running)
            await asyncio.sleep(0.5)
            assert not lease.read(model_dir).leaving
            chief._agent.leave()
            await until(lambda: lease.read(model_dir).leaving)
            assert chief._agent.running is not None
            assert chief._agent.running.alive
            assert not lease.read(model_dir).released
            code = await end
            chief._record.lock.close()
        assert lease.read(model_dir).released
        return code

    assert finish(run()) is Exit.STOPPED


# A chief that was replaced. -----------------------------------------------------------------------


def replaced(chief: Chief) -> None:
    write_lease(Path(chief._directory), number=chief._record.lease.number + 1)


SAVES = ["sh", "-c", "trap 'echo x > saved' TERM; echo x > begun; while :; do sleep 0.05; done"]
"""A program that saves at SIGTERM."""


def test_the_program_of_a_chief_that_was_replaced_has_no_time_to_save(tmp_path: Path) -> None:
    async def run() -> None:
        chief = chief_of(tmp_path, program=SAVES, working_dir=str(tmp_path))
        async with running(chief):
            await until((tmp_path / "begun").exists)
            replaced(chief)
            child = chief._agent.running
            assert child is not None
            await until(lambda: not child.alive, 5)
            assert chief._rendezvous.code is Exit.REPLACED
            assert await chief._finish() is Exit.REPLACED
            chief._record.lock.close()
        assert not (tmp_path / "saved").exists()

    finish(run())


def test_the_program_of_a_worker_that_was_replaced_has_no_time_to_save(tmp_path: Path) -> None:
    async def run() -> None:
        spec = build(
            {
                "name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, "program": SAVES, "code": [],
                "working_dir": str(tmp_path), "model_dir": str(tmp_path / "model"),
            }
        )  # fmt: skip
        (tmp_path / "log").touch()
        agent = Agent(spec, tasks_of(spec)[1], tmp_path / "log")
        await agent.act(Reply("running", 1, 0, 1))
        await until((tmp_path / "begun").exists)
        code = await follower._end(agent, Reply("failed", 0, 0, 1, int(Exit.REPLACED), "another", refused=True))
        assert code is Exit.REPLACED
        await agent.end_children()
        assert not (tmp_path / "saved").exists()

    finish(run())


def make_report(chief: Chief, name: str, **changes: Any) -> Report:
    return replace(
        task_report.make_report(chief._agent), task=name, incarnation="another", status=ChildStatus(), **changes
    )


def test_a_chief_that_was_replaced_announces_no_end_of_its_own(
    chief: Chief, capsys: pytest.CaptureFixture[str]
) -> None:
    held = asyncio.run(chief.answer(make_report(chief, "worker:2"), 0))
    assert held.phase == "forming"
    replaced(chief)
    reply = asyncio.run(
        chief.answer(make_report(chief, "worker:1", loss=Loss(Cause.ERROR, error="my peers are gone", code=18)), 0)
    )
    assert (reply.phase, reply.code) == ("forming", Exit.OK)
    assert chief._rendezvous.code is Exit.REPLACED
    assert capsys.readouterr().err.startswith("trainer: another chief has taken this one's place in model_dir")
    assert asyncio.run(asyncio.wait_for(chief._finish(), 30)) is Exit.REPLACED


def test_a_chief_that_is_replaced_while_its_program_ends_closes_nothing(chief: Chief, tmp_path: Path) -> None:
    chief._record.accepted, chief._rendezvous.generation = True, 3
    chief._announced = chief._rendezvous.version
    chief._rendezvous.end(Exit.DIVERGED, "x")
    chief._agent.leave()
    chief._announce()
    written = layout.state(tmp_path).read_text()
    replaced(chief)
    assert asyncio.run(asyncio.wait_for(chief._finish(), 30)) is Exit.REPLACED
    assert layout.state(tmp_path).read_text() == written


# A program that empties its model_dir. ------------------------------------------------------------


@pytest.mark.parametrize("makes_it_again", [True, False])
def test_a_program_may_empty_its_model_dir(tmp_path: Path, makes_it_again: bool) -> None:
    model_dir = tmp_path / "model"

    async def run() -> None:
        chief = chief_of(tmp_path)
        record = chief._record
        record.accept(4001, "this one")
        shutil.rmtree(model_dir)
        if makes_it_again:
            model_dir.mkdir()
            assert record.renew(leaving=False)
            assert lease.read(str(model_dir)) == record.lease
            assert job_state.in_use(str(model_dir)), "trainer status finds the job"
            assert job_state.load(str(model_dir), 0.0).control_port == 4001
        else:
            assert record.renew(leaving=False)
            assert not model_dir.exists(), "the program may be about to make it"
        record.made_first_step({"first_step": 1.0})
        chief._agent.leave()
        chief._rendezvous.end(Exit.DIVERGED, "x")
        assert await chief._finish() is Exit.DIVERGED
        ended = job_state.load(str(model_dir), 0.0).end
        assert ended is not None
        assert ended.code == Exit.DIVERGED
        chief._record.lock.close()

    finish(run())


def test_an_error_of_the_volume_does_not_end_the_renewals(
    chief: Chief, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(path: Path) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(Path, "exists", stale)
    assert chief._record.renew(leaving=False)


def test_a_chief_that_has_no_lease_closes_nothing(tmp_path: Path) -> None:
    """Another chief uses model_dir."""
    first = chief_of(tmp_path)
    first._record.accept(4001, "this one")
    written = {path: path.read_text() for path in (layout.state(tmp_path / "model"), layout.lease(tmp_path / "model"))}
    second = chief_of(tmp_path)
    assert second._record.refusal is not None
    second._agent.leave()

    async def run() -> Exit:
        async with peers.client() as session:
            return await second.run(session)

    assert finish(run()) is Exit.USER
    assert {path: path.read_text() for path in written} == written
    first._record.lock.close()


def test_a_checkpoint_of_the_child_needs_the_lease_of_its_own_chief(
    chief: Chief, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environment.LEASE, lease.holder(chief._directory, chief._agent.incarnation))
    checkpoint.save(tmp_path, 1, {}, {})
    replaced(chief)
    with pytest.raises(TrainerError):
        checkpoint.save(tmp_path, 2, {}, {})
    assert [path.name for path in layout.checkpoints(tmp_path).iterdir()] == ["step-00000001"]


def test_a_chief_takes_the_lock_once_the_one_before_has_let_it_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it `trainer status` finds no job, and a job of another run takes the folder at once."""
    monkeypatch.setenv(environment.RUN, RUN)
    old, new = chief_of(tmp_path), chief_of(tmp_path)
    model_dir = str(tmp_path / "model")

    async def scenario() -> None:
        async with running(new):
            assert new._record.refusal is None
            old._record.lock.close()
            await until(lambda: job_state.in_use(model_dir))
            with pytest.raises(job_state.InUse):
                job_state.lock(model_dir)
        new._record.lock.close()

    finish(scenario())


# What happens while the chief waits for a slow volume. ---------------------------------------------


def test_a_job_that_fails_while_its_chief_waits_for_the_volume_has_not_succeeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chief = chief_of(tmp_path)
    child = Child(chief._task, lambda *_: None)
    child.result = Done(step=1)

    async def wait(_: Child) -> None:
        chief._rendezvous.end(Exit.DIVERGED, "x")

    monkeypatch.setattr(chief, "_look_at_checkpoint", wait)
    monkeypatch.setattr(chief._rendezvous.tasks, "unfinished", lambda _: [])
    monkeypatch.setattr(chief._job_end, "succeed", lambda *_: pytest.fail("it writes a result"))
    finish(chief._look_at_child(child))
    chief._record.lock.close()


def test_while_its_result_is_written_no_failure_ends_the_job(tmp_path: Path) -> None:
    chief = chief_of(tmp_path)
    rendezvous = chief._rendezvous
    rendezvous.settled = True
    rendezvous.end(Exit.DIVERGED, "x")
    assert not rendezvous.over
    rendezvous.settled = False
    rendezvous.end(Exit.OK, "")
    assert (rendezvous.phase, rendezvous.code) == ("done", Exit.OK)
    chief._record.lock.close()
