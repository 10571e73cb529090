"""What the supervisor of a task that is not the chief prints at the end."""

import asyncio
import dataclasses
import itertools
from pathlib import Path

import pytest

from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.protocol.reports import Identity, Reply, Report
from trainer.supervisor.control_port import peers, server
from trainer.supervisor.task import follower, scoring
from trainer.supervisor.task.agent import Agent

SPEC = build({"name": "j", "strategy": "parameter_server", "tasks": {"ps": 1, "worker": 1}})
ENDS = [(Exit.STOPPED, "stopped by a signal", ""), (Exit.DIVERGED, "", "trainer: the loss is not finite")]


@pytest.mark.parametrize(("code", "out", "err"), ENDS)
def test_a_stop_is_printed_as_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: Exit, out: str, err: str
) -> None:
    async def run() -> Exit:
        agent = Agent(SPEC, tasks_of(SPEC)[-1], tmp_path / "ps-0.log")
        message = out or err.removeprefix("trainer: ")
        return await follower._end(agent, Reply("failed", 1, 0, 5, code=int(code), message=message))

    assert asyncio.run(run()) == code
    assert tuple(text.rstrip("\n") for text in capsys.readouterr()) == (out, err)


@pytest.mark.parametrize(
    ("code", "alone", "follows"),
    [
        (Exit.OK, Exit.OK, Exit.OK),
        (Exit.DIVERGED, Exit.DIVERGED, Exit.OK),
        (Exit.MISMATCH, Exit.MISMATCH, Exit.OK),
        (Exit.STOPPED, Exit.STOPPED, Exit.STOPPED),
        (Exit.REPLACED, Exit.REPLACED, Exit.REPLACED),
    ],
)
def test_a_task_that_follows_comes_back_only_if_the_job_does(
    monkeypatch: pytest.MonkeyPatch, code: Exit, alone: Exit, follows: Exit
) -> None:
    assert follower._exit_code(code) == alone
    monkeypatch.setenv("TRAINER_FOLLOWS", "1")
    assert follower._exit_code(code) == follows


def test_the_chief_learns_of_a_stop_before_a_task_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the stop comes while the task does what the reply to an earlier report asks for."""
    spec = build({"name": "j", "strategy": "parameter_server", "tasks": {"ps": 1, "worker": 1, "evaluator": 1}})
    heard = []

    async def answer(report: Report, known: int) -> Reply:
        heard.append(report.leaving)
        return Reply("running", 1, 0, 5)

    async def run() -> Exit:
        opened = await server.serve(0, "127.0.0.1", Identity("j", "chief:0", "x"), dict, [server.report_route(answer)])
        port = opened.number
        task = next(task for task in tasks_of(spec) if task.type == "evaluator")
        agent = Agent(
            spec, dataclasses.replace(task, cluster={"chief": [f"127.0.0.1:{port - 1000}"]}), tmp_path / "log"
        )

        async def stopped_meanwhile(agent: Agent, reply: Reply) -> None:
            agent.leave()

        monkeypatch.setattr(scoring, "keep_scoring", stopped_meanwhile)
        async with peers.client() as session:
            code = await asyncio.wait_for(follower.follow(agent, session), 30)
        await opened.close()
        return code

    assert asyncio.run(run()) == Exit.STOPPED
    assert (heard[0], heard[-1]) == (False, True)


@pytest.mark.parametrize(
    ("name", "heard", "waits", "code"),
    [
        ("worker:0", False, "1800 s (deadlines.start)", Exit.OK),
        ("worker:0", True, "900 s (deadlines.chief_lost)", Exit.CHIEF_LOST),
        ("evaluator:0", True, "120 s (an evaluator does not wait longer)", Exit.CHIEF_LOST),
        ("evaluator:0", False, "1800 s (deadlines.start)", Exit.CHIEF_LOST),
    ],
)
def test_a_task_waits_for_its_first_word_longer_than_for_the_next(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    heard: bool,
    waits: str,
    code: Exit,
) -> None:
    """With a clock that goes on by a step of 250 s at each look. A task that follows does not come back to a job whose
    chief it has never heard: that may have ended long ago."""
    monkeypatch.setattr(follower, "SLOWEST_RETRY_SECONDS", 0.05)
    if name != "evaluator:0":
        monkeypatch.setenv("TRAINER_FOLLOWS", "1")
    tasks = {"ps": 1, "worker": 1, "evaluator": 1}
    deadlines = {"start": 1800, "chief_lost": 900}
    more = {"tasks": tasks, "deadlines": deadlines, "model_dir": str(tmp_path)}
    spec = build({"name": "j", "strategy": "parameter_server", **more})

    async def run() -> Exit:
        answered = asyncio.Semaphore(0)

        async def answer(report: Report, known: int) -> Reply:
            answered.release()
            return Reply("forming", 0, 0, 1)

        opened = await server.serve(0, "127.0.0.1", Identity("j", "chief:0", "x"), dict, [server.report_route(answer)])
        port = opened.number
        if not heard:
            await opened.close()
        task = next(task for task in tasks_of(spec) if task.name == name)
        agent = Agent(
            spec, dataclasses.replace(task, cluster={"chief": [f"127.0.0.1:{port - 1000}"]}), tmp_path / "log"
        )
        now = itertools.count(0, 250)
        agent.clock = lambda: float(next(now))  # type: ignore[assignment]
        async with peers.client() as session:
            following = asyncio.create_task(follower.follow(agent, session))
            if heard:
                for _ in range(2):  # with its second report it has the first reply
                    await answered.acquire()
                await opened.close()
            return await asyncio.wait_for(following, 60)

    assert asyncio.run(run()) == code
    assert f"has had no reply from its chief (chief:0) for {waits}: " in capsys.readouterr().err


@pytest.mark.parametrize(("term", "believed"), [(0, True), (4, True), (2, False)])
def test_an_end_is_believed_but_for_that_of_a_chief_that_has_lost_its_place(
    tmp_path: Path, term: int, believed: bool
) -> None:
    """A chief that was started again and cannot use model_dir has no term."""
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2},
                  "deadlines": {"chief_lost": 1}, "model_dir": str(tmp_path)})  # fmt: skip
    end = Reply("failed", 0, 0, 2, code=int(Exit.USER), message="model_dir: no space", term=term)
    replies = itertools.chain([Reply("forming", 0, 0, 1, term=3)], itertools.repeat(end))

    async def answer(report: Report, known: int) -> Reply:
        return next(replies)

    async def run() -> Exit:
        opened = await server.serve(0, "127.0.0.1", Identity("j", "worker:0", "x"), dict, [server.report_route(answer)])
        address = f"127.0.0.1:{opened.number - 1000}"
        task = dataclasses.replace(tasks_of(spec)[1], cluster={"worker": [address, "127.0.0.1:9"]})
        agent = Agent(spec, task, tmp_path / "log")
        beat = asyncio.create_task(agent.clock.run())
        async with peers.client() as session:
            code = await asyncio.wait_for(follower.follow(agent, session), 30)
        beat.cancel()
        await opened.close()
        return code

    assert asyncio.run(run()) == (Exit.USER if believed else Exit.CHIEF_LOST)
