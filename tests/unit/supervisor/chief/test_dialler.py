"""The chief's connections back to its tasks, and its record of refused reports."""

import asyncio

import pytest

from tests.unit.supervisor.ports import HOST
from trainer.job.errors import Exit
from trainer.protocol.status import End
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.control_port import peers


def test_refusals_are_logged_once_for_each_peer_and_change_nothing(
    chief: Chief, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        chief.refuse("10.0.0.1", "worker:1", "lacks this job's secret")
        chief.refuse("10.0.0.1", "", "is not a report")
    for number in range(1000):
        chief.refuse(f"10.0.1.{number}", "worker:7", "is not a report")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "refused a report from 10.0.0.1 as worker:1: it lacks this job's secret",
        "refused a report from 10.0.0.1: it is not a report",
    ]
    assert len(lines) == 50
    assert chief.status().refused_reports == {"unsigned": 3, "malformed": 1003}
    assert chief._rendezvous.tasks.missing(0)["worker:1"] == "has not reported (not dialled yet)"
    chief._rendezvous.tick(chief._clock() + 10_000)
    assert chief.status().end == End(Exit.MISSING, chief._rendezvous.message), "anybody can send what is not signed"


def test_a_task_that_never_came_is_named_with_the_refusal_of_its_reports(chief: Chief) -> None:
    chief.refuse("10.0.0.1", "worker:1", "lacks this job's secret")

    async def run() -> str:
        async with peers.client() as session:
            await chief._dialler.dial_back(session, "worker:1", (HOST, 1))
        return chief._rendezvous.tasks.missing(0)["worker:1"]

    why = "127.0.0.1:1 refused; a report from 10.0.0.1 as worker:1 lacks this job's secret"
    assert asyncio.run(run()) == f"has not reported ({why})"
