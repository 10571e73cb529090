"""What the supervisor of a task that is not the chief prints at the end."""

import asyncio
from pathlib import Path

import pytest

from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.job.tf_config import tasks_of
from trainer.protocol.reports import Reply
from trainer.supervisor import follower
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
