"""What the supervisor of a task that is not the chief prints at the end."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.protocol.reports import Identity, Reply, Report
from trainer.supervisor import follower, peers, scoring, server
from trainer.supervisor.agent import Agent

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


def test_the_chief_learns_of_a_stop_before_a_task_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the stop comes while the task does what the reply to an earlier report asks for."""
    spec = build({"name": "j", "strategy": "parameter_server", "tasks": {"ps": 1, "worker": 1, "evaluator": 1}})
    heard = []

    async def answer(report: Report, known: int) -> Reply:
        heard.append(report.leaving)
        return Reply("running", 1, 0, 5)

    async def run() -> Exit:
        runner = await server.serve(0, "127.0.0.1", Identity("j", "chief:0", "x"), dict, answer)
        port = runner.addresses[0][1]
        task = next(task for task in tasks_of(spec) if task.type == "evaluator")
        agent = Agent(
            spec, dataclasses.replace(task, cluster={"chief": [f"127.0.0.1:{port - 1000}"]}), tmp_path / "log"
        )

        async def stopped_meanwhile(agent: Agent, reply: Reply) -> None:
            agent.leave()

        monkeypatch.setattr(scoring, "keep_scoring", stopped_meanwhile)
        async with peers.client() as session:
            code = await asyncio.wait_for(follower.follow(agent, session), 30)
        await runner.cleanup()
        return code

    assert asyncio.run(run()) == Exit.STOPPED
    assert (heard[0], heard[-1]) == (False, True)
