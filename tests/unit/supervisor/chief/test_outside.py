"""What the chief reports at the end of its job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trainer.job.errors import Exit
from trainer.protocol.events import Step
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.children.child import Child
from trainer.supervisor.outside import webhook
from trainer.supervisor.outside.webhook import Ending


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Ending]:
    found: list[Ending] = []

    async def tell(spec: Any, task: Any, end: Ending, seconds: float) -> None:
        found.append(end)

    monkeypatch.setattr(webhook, "tell", tell)
    return found


def test_the_last_figures_are_those_of_a_child_that_has_ended_before_the_job(chief: Chief, told: list[Ending]) -> None:
    child = chief._agent.running = Child(chief._task, lambda *_: None)
    child.status.take(Step(step=3, figures={"loss": 0.5}))
    chief._observers.look()
    child.status.take(Step(step=4, figures={"loss": 0.25}))  # its last words
    chief._agent.running = None  # as the job forms again, or is asked to stop
    chief._rendezvous.end(Exit.STOPPED, "stopped by a signal")
    asyncio.run(chief._observers.tell())
    assert [end.figures for end in told] == [{"loss": 0.25}]


def test_the_last_figures_are_those_of_the_child_before_one_that_has_none_yet(chief: Chief, told: list[Ending]) -> None:
    before = chief._agent.running = Child(chief._task, lambda *_: None)
    before.status.take(Step(step=3, figures={"loss": 0.5}))
    chief._observers.look()
    chief._agent.running = Child(chief._task, lambda *_: None)
    chief._rendezvous.end(Exit.GAVE_UP, "5 generations without a new step (max_restarts)")
    asyncio.run(chief._observers.tell())
    assert [end.figures for end in told] == [{"loss": 0.5}]
