"""What the chief reports at the end of its job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trainer.job.errors import Exit
from trainer.protocol.events import Step
from trainer.supervisor.chief import reporter
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.children.child import Child
from trainer.supervisor.children.child_status import take
from trainer.supervisor.outside import webhook
from trainer.supervisor.outside.webhook import Ending


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Ending]:
    found: list[Ending] = []

    async def tell(spec: Any, task: Any, end: Ending, seconds: float) -> None:
        found.append(end)

    monkeypatch.setattr(webhook, "tell", tell)
    return found


@pytest.fixture(autouse=True)
def at_each_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "OBSERVE_SECONDS", 0.0)


def test_the_last_figures_are_those_of_a_child_that_has_ended_before_the_job(chief: Chief, told: list[Ending]) -> None:
    child = chief._agent.running = Child(chief._task, lambda *_: None)
    take(child.status, Step(step=3, figures={"loss": 0.5}))
    chief._reporter.observe(0.0)
    take(child.status, Step(step=4, figures={"loss": 0.25}))  # its last words
    chief._rendezvous.end(Exit.STOPPED, "stopped by a signal")
    chief._reporter.observe(0.1)
    chief._agent.running = None  # as the job is asked to stop
    asyncio.run(chief._end_report.tell(None))
    assert [(end.figures, end.message) for end in told] == [({"loss": 0.25}, "stopped by a signal")]


def test_the_last_figures_are_those_of_the_child_before_one_that_has_none_yet(chief: Chief, told: list[Ending]) -> None:
    before = chief._agent.running = Child(chief._task, lambda *_: None)
    take(before.status, Step(step=3, figures={"loss": 0.5}))
    chief._reporter.observe(0.0)
    chief._agent.running = Child(chief._task, lambda *_: None)
    chief._reporter.observe(0.1)
    chief._rendezvous.end(Exit.GAVE_UP, "5 generations without a new step (max_restarts)")
    chief._reporter.observe(0.2)
    asyncio.run(chief._end_report.tell(None))
    assert [end.figures for end in told] == [{"loss": 0.5}]
