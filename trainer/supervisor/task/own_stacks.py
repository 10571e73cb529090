"""The stacks of a task's own child: taken when the chief asks for them, and before a child that hangs is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trainer import clocks
from trainer.protocol.facts import Loss
from trainer.protocol.stacks import TaskStacks
from trainer.supervisor.children.child import Child
from trainer.supervisor.children.stack_pipes import threads
from trainer.supervisor.rendezvous import gathering, hang

DOING_SECONDS = 0.5
"""Time for the child's answer to what it does: one that hangs may give none."""
KILL_SECONDS = gathering.ANSWER_SECONDS + 0.5
"""Time from the report that a child hangs to its end: meanwhile the chief takes the stacks of all tasks."""
_DOING_POLL_SECONDS = 0.02


class OwnStacks:
    def __init__(self, folder: Path, clock: Callable[[], float], on_taken: Callable[[], None]) -> None:
        """
        Args:
            folder: of the job's code.
        """
        self._folder, self._clock, self._on_taken = folder, clock, on_taken
        self.taken: TaskStacks | None = None
        """The stacks for the reports, until the chief no longer asks."""
        self.hangs = False
        """Whether the child gives no sign of life, for the reports."""
        self._hangs_since = 0.0
        self._last: TaskStacks | None = None
        """The stacks of the child that hangs."""
        self._number = 0
        self._taking: asyncio.Task[None] | None = None

    def ask(self, number: int, child: Child | None) -> None:
        """Takes the stacks, unless that question is answered already; 0 is none."""
        if number != self._number:
            self._number, self.taken = number, None
            if number:
                self._taking = asyncio.create_task(self._take(number, child))

    async def look(self, child: Child, silence: Loss | None) -> Loss | None:
        """Why the child must be killed now; None if it need not.

        Args:
            silence: the loss if it has given no sign of life for too long.
        """
        if silence is None:
            self.hangs = False
        elif not self.hangs:
            self._last = await self.now(child)
            self.hangs, self._hangs_since = True, self._clock()
            self._on_taken()
        elif self._clock() - self._hangs_since > KILL_SECONDS:
            self.hangs = False
            place = hang.where(self._last) if self._last else ""
            return replace(silence, text=place) if place else silence
        return None

    async def _take(self, number: int, child: Child | None) -> None:
        stacks = await self.now(child, number)
        if number == self._number:
            self.taken = stacks
            self._on_taken()

    async def now(self, child: Child | None, number: int = 0) -> TaskStacks:
        if child is None or not child.alive:
            return TaskStacks(number, "no child")
        child.ask_what_it_does()
        state, text = await child.take_stacks()
        deadline = clocks.monotonic() + DOING_SECONDS
        while not state and child.doing is None and child.answers_orders and clocks.monotonic() < deadline:
            await asyncio.sleep(_DOING_POLL_SECONDS)
        return TaskStacks(number, state, child.activity(), threads(text, self._folder))
