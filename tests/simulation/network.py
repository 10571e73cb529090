"""The network between supervisors: messages that are late, lost, doubled, or cut off in one direction."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation import loop as loops
from tests.simulation.loop import Loop
from trainer.protocol import reports
from trainer.protocol.reports import Identity, Reply, Report
from trainer.supervisor.control_port import peers

if TYPE_CHECKING:
    from tests.simulation.world import Machine, Supervisor

ENCODED = 16
"""One of so many reports goes as bytes, through the checks of protocol/reports.py, which take half of the time."""
FORMER = 0.3
"""Share of the questions that go to a process whose place another one has taken."""
Serve = Callable[["Supervisor"], Coroutine[Any, Any, Any]]


@dataclass
class Network:
    loop: Loop
    rng: random.Random
    job: str
    current: Callable[[], Supervisor]
    slowest: float = 0.003
    """The longest that a message takes."""
    losses: float = 0.0
    doubles: float = 0.0
    """Shares of the messages."""

    def __post_init__(self) -> None:
        self.listening: dict[str, Supervisor] = {}
        """The process at the address of each task."""
        self.former: dict[str, Supervisor] = {}
        """The process whose place another one has taken, which some still find at the address of its task."""
        self.sent = self.messages = 0
        self.delays: dict[int, float] = {}
        """How long messages of these numbers take."""

    def latency(self) -> float:
        """Of the next message."""
        self.messages += 1
        return self.delays.get(self.messages) or self.rng.uniform(0.0005, self.slowest)

    def lost(self, a: Machine, b: Machine) -> bool:
        return (a is not b and (a.no_out or b.no_in)) or (self.losses > 0 and self.rng.random() < self.losses)

    async def ask(self, address: tuple[str, int], serve: Serve, seconds: float) -> Any:
        """Sends a question to the process at an address; returns its answer.

        Raises:
            ConnectionError: as a client of HTTP has it.
        """
        try:
            return await asyncio.wait_for(self._ask(self.current(), address, serve), seconds)
        except asyncio.TimeoutError:
            raise ConnectionError(f"no answer from {address[0]}:{address[1]}") from None

    async def _ask(self, me: Supervisor, address: tuple[str, int], serve: Serve) -> Any:
        where, port = address
        answer: asyncio.Future[Any] = self.loop.create_future()
        await asyncio.sleep(self.latency())
        to = self._at(where.replace("-", ":"))
        if to is None and not me.machine.no_out:
            raise ConnectionError(f"{where}:{port} refused")
        if to is not None and not self.lost(me.machine, to.machine):
            to.asked[answer] = None
            for _ in range(1 + (self.doubles > 0 and self.rng.random() < self.doubles)):
                spawn(self.loop, self._serve(me, to, serve, answer), to)
        try:
            return await answer
        finally:
            if to is not None:
                to.asked.pop(answer, None)

    def _at(self, task: str) -> Supervisor | None:
        former = self.former.get(task)
        if former is not None and not former.dead and self.rng.random() < FORMER:
            return former
        return self.listening.get(task)

    async def _serve(self, me: Supervisor, to: Supervisor, serve: Serve, answer: asyncio.Future[Any]) -> None:
        try:
            found = await serve(to)
        except ConnectionError as error:
            found = error
        if not self.lost(to.machine, me.machine):
            self.loop.call_later(self.latency(), arrive, answer, found, context=contextvars.Context())

    async def send_report(
        self, _: object, chief: tuple[str, int], report: Report, known: int, secret: bytes = b"", hold: float = 0.0
    ) -> Reply:
        """In the place of peers.send_report."""
        self.sent += 1
        encoded = reports.question(report, known) if self.sent % ENCODED == 0 else None

        async def serve(to: Supervisor) -> Reply:
            if to.chief is None:
                raise ConnectionError(f"{chief[0]}:{chief[1]} answers 404: another program?")
            if encoded is None:
                return await to.chief.answer(report, known)
            asked = reports.read_question(encoded)
            return reports.read_answer(reports.answer(await to.chief.answer(asked.report, asked.known)))

        reply = await self.ask(chief, serve, max(peers.HOLD_SECONDS, hold) + peers.DIAL_SECONDS)
        assert isinstance(reply, Reply)
        return reply

    async def who_is_there(self, _: object, address: tuple[str, int]) -> Identity:
        """In the place of peers.who_is_there."""

        async def serve(to: Supervisor) -> Identity:
            assert to.agent is not None
            return Identity(self.job, to.task.name, to.agent.incarnation)

        identity = await self.ask(address, serve, peers.DIAL_SECONDS)
        assert isinstance(identity, Identity)
        return identity

    def leave(self, who: Supervisor, *, told: bool) -> None:
        """A process has ended.

        Args:
            told: whether its connections break, as the kernel closes them; without power nobody does.
        """
        if self.listening.get(who.task.name) is who:
            del self.listening[who.task.name]
        if told:
            for answer in who.asked:
                arrive(answer, ConnectionError(f"{who.task.name}: connection reset by peer"))


def arrive(answer: asyncio.Future[Any], found: object) -> None:
    if not answer.done():
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(found)


def spawn(loop: Loop, work: Coroutine[Any, Any, Any], who: Supervisor | None) -> asyncio.Task[Any]:
    """Runs it as the code of a supervisor, or of the world."""
    context = contextvars.copy_context()
    context.run(loops.running.set, who)
    return loop.create_task(work, context=context)
