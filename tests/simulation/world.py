"""The world of one history: machines with clocks, a network, supervisors that run trainer's own code, and a target that
starts them again.

What a supervisor does to the world goes through few doors, which `doors` puts in the place of the real ones: clocks.py,
ids.py, host.py, peers.py, process.py, and the folder of model_dir.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import errno
import os
import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.simulation import loop as loops
from tests.simulation import trace
from tests.simulation.loop import Loop
from trainer import clocks, host, ids
from trainer.job import environment
from trainer.job.cluster import Task, tasks_of
from trainer.job.errors import Exit, TrainerError
from trainer.job.spec import JobSpec
from trainer.model_dir import lease
from trainer.protocol import log_lines, reports
from trainer.protocol.reports import Identity, Reply, Report
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.children import process
from trainer.supervisor.control_port import peers
from trainer.supervisor.task.agent import Agent
from trainer.supervisor.task.follower import follow, report_failure

if TYPE_CHECKING:
    from tests.simulation.children import SimulatedProcess

SECRET = b"secret"
VERSIONS = {"tensorflow": "2.21.0", "keras": "3.15.1", "trainer": "0.3.0", "python": "3.11"}
EPOCH = 1.7e9
"""What the clocks on the wall showed when a history began."""


@dataclass
class Machine:
    """One on which a task's processes run."""

    number: int
    booted: float
    rate: float = 1.0
    """How fast its monotonic clock runs."""
    wall: float = 0.0
    """By how much its clock on the wall is wrong."""
    no_in: bool = False
    no_out: bool = False
    """Whether no message reaches it, or leaves it."""

    @property
    def boot(self) -> str:
        return f"boot {self.number}"


class Supervisor:
    """One process of `trainer task`."""

    def __init__(self, world: World, task: Task, machine: Machine, number: int) -> None:
        self.world, self.task, self.machine, self.number = world, task, machine, number
        self.dead, self.backlog = False, None
        self.began = world.loop.now
        self.agent: Agent | None = None
        self.chief: Chief | None = None
        self.children: list[SimulatedProcess] = []
        self.asked: set[asyncio.Future[Reply]] = set()
        """Questions that it has been asked and has not answered: their connections break with it."""
        self.ended: asyncio.Future[int | None] = world.loop.create_future()
        """Its exit code; None if it was killed."""

    async def run(self) -> None:
        """As `main` and `_run` in trainer/supervisor/main.py."""
        agent = self.agent = Agent(self.world.spec, self.task, Path(os.devnull), SECRET, VERSIONS)
        try:
            code = await self._run(agent)
        except TrainerError as error:
            log_lines.log_error(str(error))
            code = error.code
            if not self.task.is_chief:
                code = await report_failure(self.world.spec, self.task, SECRET, error)
        self.world.exited(self, int(code))

    async def _run(self, agent: Agent) -> Exit:
        if self.task.type != "evaluator":
            await agent.prepare_child()
        beat = asyncio.create_task(agent.clock.run())
        chief = Chief(agent) if self.task.is_chief else None
        self.chief = chief
        self.world.listening[self.task.name] = self
        try:
            return await (chief.run(None) if chief else follow(agent, None))  # type: ignore[arg-type]
        finally:
            beat.cancel()
            await agent.end_children()

    def note(self, kind: Callable[..., trace.Any], **fields: Any) -> None:
        self.world.history.events.append(kind(self.world.loop.now, self.task.name, self.number, **fields))


def current() -> Supervisor:
    found = loops.running.get()
    assert isinstance(found, Supervisor)
    return found


@dataclass
class World:
    spec: JobSpec
    rng: random.Random
    folder: Path
    loop: Loop = field(default_factory=Loop)

    def __post_init__(self) -> None:
        made = tasks_of(self.spec, lambda kind, index: f"{kind}-{index}:2222")
        self.tasks = {task.name: task for task in made}
        self.history = trace.History(self.spec, tuple(self.tasks))
        self.listening: dict[str, Supervisor] = {}
        """The process at the address of each task."""
        self.supervisors: list[Supervisor] = []
        self.machines = 0
        self.children = 0
        self.names = 0
        self.latency: Callable[[], float] = lambda: self.rng.uniform(0.0005, 0.003)
        self.lost: Callable[[], bool] = lambda: False
        self.doubled: Callable[[], bool] = lambda: False
        self.stopping = False

    def spawn(self, work: Coroutine[Any, Any, Any], who: Supervisor | None = None) -> asyncio.Task[Any]:
        """Runs it as the code of a supervisor, or of the world."""
        context = contextvars.copy_context()
        context.run(loops.running.set, who)
        return self.loop.create_task(work, context=context)

    # Supervisors. ---------------------------------------------------------------------------------

    def machine(self) -> Machine:
        self.machines += 1
        return Machine(self.machines, self.loop.now - self.rng.uniform(10, 1000), wall=self.rng.uniform(-0.5, 0.5))

    def start(self, task: str, machine: Machine) -> Supervisor:
        made = Supervisor(self, self.tasks[task], machine, len(self.supervisors) + 1)
        self.supervisors.append(made)
        made.note(trace.Started, host=machine.boot, run=os.environ.get(environment.RUN, ""))
        self.spawn(made.run(), made)
        return made

    def exited(self, who: Supervisor, code: int) -> None:
        who.note(trace.Exited, code=code)
        self._gone(who, code)

    def kill(self, who: Supervisor, *, power: bool = False) -> None:
        """SIGKILL, or a loss of power: then nobody hears of it."""
        if not who.dead:
            who.note(trace.Killed)
            self._gone(who, None, told=not power)

    def _gone(self, who: Supervisor, code: int | None, told: bool = True) -> None:
        who.dead = True
        self.history.outcome[who.task.name] = code
        if self.listening.get(who.task.name) is who:
            del self.listening[who.task.name]
        if who.chief is not None:
            with contextlib.suppress(AttributeError):
                who.chief._record.lock.close()
        for child in who.children:
            child.die(-9, "world" if code is None else "supervisor")
        if told:
            for future in who.asked:
                if not future.done():
                    future.set_exception(ConnectionError(f"{who.task.name}: connection reset"))
        who.ended.set_result(code)

    def ask_to_stop(self, who: Supervisor) -> None:
        if not who.dead and who.agent is not None:
            who.note(trace.AskedToStop)
            context = contextvars.copy_context()
            context.run(loops.running.set, who)
            self.loop.call_soon(who.agent.leave, context=context)

    # The network. ---------------------------------------------------------------------------------

    def reaches(self, a: Machine, b: Machine) -> bool:
        return a is b or not (a.no_out or b.no_in)

    async def ask(self, address: tuple[str, int], serve: Callable[[Supervisor], Coroutine[Any, Any, Any]], seconds: float) -> Any:
        """Sends a question to the process at an address; returns its answer.

        Raises:
            ConnectionError: as a client of HTTP.
        """
        me, name = current(), address[0].replace("-", ":")
        where, port = address
        await asyncio.sleep(self.latency())
        to = self.listening.get(name)
        future: asyncio.Future[Any] = self.loop.create_future()
        if to is None or to.backlog is not None and self.rng.random() < 0.1:
            if self.loop.now >= 0 and not me.machine.no_out:
                raise ConnectionError(f"{where}:{port} refused")
        elif self.reaches(me.machine, to.machine) and not self.lost():
            to.asked.add(future)
            for _ in range(2 if self.doubled() else 1):
                self.spawn(self._serve(me, to, serve, future), to)
        try:
            return await asyncio.wait_for(future, seconds)
        except asyncio.TimeoutError:
            raise ConnectionError(f"no answer from {where}:{port}") from None
        finally:
            if to is not None:
                to.asked.discard(future)

    async def _serve(
        self, me: Supervisor, to: Supervisor, serve: Callable[[Supervisor], Coroutine[Any, Any, Any]], future: asyncio.Future[Any]
    ) -> None:
        try:
            answer = await serve(to)
        except ConnectionError as error:
            answer = error
        if not self.reaches(to.machine, me.machine) or self.lost():
            return

        def arrive() -> None:
            if future.done():
                return
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.loop.call_later(self.latency(), arrive, context=contextvars.Context())

    async def send_report(
        self, _: object, chief: tuple[str, int], report: Report, known: int, secret: bytes = b"", hold: float = 0.0
    ) -> Reply:
        body = reports.question(report, known)

        async def serve(to: Supervisor) -> Reply:
            if to.chief is None:
                raise ConnectionError(f"{chief[0]}:{chief[1]} answers 404: another program?")
            asked = reports.read_question(body)
            return reports.read_answer(reports.answer(await to.chief.answer(asked.report, asked.known)))

        seconds = max(peers.HOLD_SECONDS, hold) + peers.DIAL_SECONDS
        reply = await self.ask(chief, serve, seconds)
        assert isinstance(reply, Reply)
        return reply

    async def who_is_there(self, _: object, address: tuple[str, int]) -> Identity:
        async def serve(to: Supervisor) -> Identity:
            assert to.agent is not None
            return Identity(self.spec.name, to.task.name, to.agent.incarnation)

        identity = await self.ask(address, serve, peers.DIAL_SECONDS)
        assert isinstance(identity, Identity)
        return identity

    # Doors. ---------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        machine = current().machine
        return (self.loop.now - machine.booted) * machine.rate

    def wall(self) -> float:
        return EPOCH + self.loop.now + current().machine.wall

    def new_id(self) -> str:
        self.names += 1
        return f"id{self.names}-{self.rng.getrandbits(32):08x}"

    def printed(self, text: str, stream: object) -> None:
        import sys

        current().note(trace.Logged, line=text, error=stream is sys.stderr)

    @contextlib.contextmanager
    def doors(self) -> Iterator[None]:
        from tests.simulation.children import SimulatedProcess

        with contextlib.ExitStack() as stack:
            for module, name, door in [
                (clocks, "monotonic", self.monotonic),
                (clocks, "wall", self.wall),
                (clocks, "pause", lambda _: None),
                (ids, "new", self.new_id),
                (host, "process_age", lambda: self.loop.now - current().began),
                (host, "uptime", self.monotonic),
                (host, "boot_id", lambda: current().machine.boot),
                (host, "oom_kills", lambda: 0),
                (peers, "send_report", self.send_report),
                (peers, "who_is_there", self.who_is_there),
                (peers, "client", lambda: contextlib.nullcontext()),
                (process, "Process", SimulatedProcess),
                (log_lines, "_print", self.printed),
            ]:
                stack.enter_context(mock.patch.object(module, name, door))
            yield
