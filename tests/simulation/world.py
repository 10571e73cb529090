"""The world of one history: machines with clocks, a disk, a network, and supervisors that run trainer's own code.

What a supervisor does to the world goes through few doors, which are functions and classes of modules: the clocks, the
names, facts about the machine, the control port, processes, and the disk. `doors` puts the world's own in their place.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import random
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.simulation import loop as loops
from tests.simulation import trace
from tests.simulation.loop import Loop
from tests.simulation.network import Network, spawn
from trainer import clocks, host, ids, sockets
from trainer.job.cluster import Task, tasks_of
from trainer.job.errors import Exit, TrainerError
from trainer.job.spec import JobSpec
from trainer.model_dir import checkpoint, disk, fingerprint, layout
from trainer.protocol import log_lines
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.children import process
from trainer.supervisor.control_port import peers
from trainer.supervisor.task import agent as agents
from trainer.supervisor.task.agent import Agent
from trainer.supervisor.task.follower import follow, report_failure

if TYPE_CHECKING:
    from tests.simulation.children import SimulatedProcess
    from tests.simulation.disk import Lock

RUN = "run 1"
_DIGESTS = {"digits.py": "0"}
"""Of the built-in workload, which nobody edits."""
VERSIONS = {"tensorflow": "2.21.0", "keras": "3.15.1", "trainer": "0.3.0", "python": "3.11"}
EPOCH = 1.7e9
"""What the clocks on the wall showed when a history began."""


@dataclass
class Machine:
    """One on which processes of a task run."""

    number: int
    booted: float
    rate: float = 1.0
    """How fast its monotonic clock runs."""
    shown: float = 0.0
    """What that clock showed when it began to run at this rate, which was at `since`."""
    since: float = 0.0
    wall: float = 0.0
    """By how much its clock on the wall is wrong."""
    no_in: bool = False
    no_out: bool = False
    """Whether no message of another machine reaches it, or none of its own leaves it."""

    def __post_init__(self) -> None:
        self.since = self.booted

    def monotonic(self, now: float) -> float:
        return self.shown + (now - self.since) * self.rate

    def drift(self, now: float, rate: float) -> None:
        self.shown, self.since, self.rate = self.monotonic(now), now, rate

    @property
    def boot(self) -> str:
        return f"boot {self.number}"


@dataclass
class Listener:
    """With which a task's children listen for gradients: at a port of the supervisor's number."""

    port: int

    def getsockname(self) -> tuple[str, int]:
        return "0.0.0.0", self.port

    def close(self) -> None:
        pass


class Supervisor:
    """One process of `trainer task`."""

    def __init__(self, world: World, task: Task, machine: Machine, number: int) -> None:
        self.world, self.task, self.machine, self.number = world, task, machine, number
        self.dead = False
        self.failing = False
        """Whether it only reports why it fails: SIGTERM ends it then, as it ends any process."""
        self.backlog: deque[asyncio.Handle] | None = None
        self.began = world.loop.now
        self.agent: Agent | None = None
        self.chief: Chief | None = None
        self.children: list[SimulatedProcess] = []
        self.locks: list[Lock] = []
        self.asked: dict[asyncio.Future[Any], None] = {}
        """Questions that it has been asked and has not answered: their connections break with it."""
        self.ended: asyncio.Future[int | None] = world.loop.create_future()
        """Its exit code; None if it was killed."""

    async def run(self) -> None:
        """As `main` and `_run` in trainer/supervisor/main.py."""
        spec, task = self.world.spec, self.task
        self.agent = Agent(spec, task, Path(os.devnull), b"", VERSIONS)
        try:
            code = await self._run(self.agent)
        except TrainerError as error:
            log_lines.log_error(str(error))
            self.failing = True
            code = error.code if task.is_chief else await report_failure(spec, task, b"", error)
        self.world.exited(self, int(code))

    async def _run(self, agent: Agent) -> Exit:
        if self.task.type != "evaluator":
            await agent.prepare_child()
        beat = asyncio.create_task(agent.clock.run())
        self.chief = Chief(agent) if self.task.is_chief else None
        self.world.network.listening[self.task.name] = self
        nobody: Any = None  # the session of a client of HTTP
        try:
            return await (self.chief.run(nobody) if self.chief else follow(agent, nobody))
        finally:
            beat.cancel()
            await agent.end_children()

    def note(self, kind: Callable[..., trace.Any], **fields: Any) -> None:
        self.world.history.events.append(kind(self.world.loop.now, self.task.name, self.number, **fields))

    def call(self, callback: Callable[[], object]) -> None:
        """Runs it in this process, as the handler of a signal does."""
        context = contextvars.copy_context()
        context.run(loops.running.set, self)
        self.world.loop.call_soon(callback, context=context)


def current() -> Supervisor:
    found = loops.running.get()
    assert isinstance(found, Supervisor)
    return found


@dataclass
class World:
    spec: JobSpec
    steps: int
    checkpoint_steps: int
    rng: random.Random
    loop: Loop = field(default_factory=Loop)
    supervisors: list[Supervisor] = field(default_factory=list)
    stopping: bool = False
    """Whether somebody has stopped the whole job."""

    def __post_init__(self) -> None:
        from tests.simulation.children import Trainings
        from tests.simulation.disk import Disk

        made = tasks_of(self.spec, lambda kind, index: f"{kind}-{index}:2222")
        self.tasks = {task.name: task for task in made}
        self.history = trace.History(self.spec, tuple(self.tasks))
        self.network = Network(self.loop, self.rng, self.spec.name, current)
        self.disk, self.trainings = Disk(self), Trainings(self)
        self.machines = self.children = self.names = 0
        self.replaced: dict[str, asyncio.Future[float]] = {}
        """By task: set once another process is to take its place, to the seconds until then."""

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs it as the world's own."""
        return spawn(self.loop, work, None)

    # Supervisors. ---------------------------------------------------------------------------------

    def machine(self) -> Machine:
        self.machines += 1
        return Machine(self.machines, self.loop.now - self.rng.uniform(10, 1000), wall=self.rng.uniform(-0.5, 0.5))

    def start(self, task: str, machine: Machine) -> Supervisor:
        made = Supervisor(self, self.tasks[task], machine, len(self.supervisors) + 1)
        self.supervisors.append(made)
        made.note(trace.Started, host=machine.boot, run=RUN)
        spawn(self.loop, made.run(), made)
        return made

    def exited(self, who: Supervisor, code: int) -> None:
        who.note(trace.Exited, code=code)
        self._gone(who, code)

    def kill(self, who: Supervisor, *, power: bool = False) -> None:
        """SIGKILL, or a loss of power: then nobody hears of it."""
        if not who.dead:
            who.note(trace.Killed)
            self._gone(who, None, told=not power)

    def _gone(self, who: Supervisor, code: int | None, *, told: bool = True) -> None:
        who.dead = True
        self.history.outcome[who.task.name] = code
        for lock in who.locks:
            lock.close()
        for child in who.children:
            child.die(-9, "world")
        self.network.leave(who, told=told)
        who.ended.set_result(code)

    def ask_to_stop(self, who: Supervisor) -> None:
        """SIGTERM."""
        if not who.dead and who.agent is not None:
            who.note(trace.AskedToStop)
            if who.failing:
                self.kill(who)
            else:
                who.call(who.agent.leave)

    def replace(self, task: str, seconds: float) -> None:
        """Has the target start another process of this task after so many seconds, whether or not the last one has
        ended."""
        if (gone := self.replaced.get(task)) is not None and not gone.done():
            gone.set_result(seconds)

    def freeze(self, who: Supervisor) -> None:
        """SIGSTOP to all processes of a task."""
        who.backlog = who.backlog if who.backlog is not None else deque()
        for child in who.children:
            child.frozen = True

    def thaw(self, who: Supervisor) -> None:
        self.loop.thaw(who)
        for child in who.children:
            child.thaw()

    # Doors. ---------------------------------------------------------------------------------------

    def _monotonic(self) -> float:
        return current().machine.monotonic(self.loop.now)

    def _new_name(self) -> str:
        self.names += 1
        return f"{self.names}-{self.rng.getrandbits(32):08x}"

    def _print(self, text: str, stream: object) -> None:
        current().note(trace.Logged, line=text, error=stream is sys.stderr)

    @contextlib.contextmanager
    def doors(self) -> Iterator[None]:
        from tests.simulation.children import SimulatedProcess

        own = Path(self.spec.directory) / layout.OWN
        doors: list[tuple[object, str, object]] = [
            (clocks, "monotonic", self._monotonic),
            (clocks, "wall", lambda: EPOCH + self.loop.now + current().machine.wall),
            (clocks, "pause", lambda _: None),
            (ids, "new", self._new_name),
            (host, "process_age", lambda: self.loop.now - current().began),
            (host, "uptime", self._monotonic),
            (host, "boot_id", lambda: current().machine.boot),
            (host, "oom_kills", lambda: 0),
            (peers, "send_report", self.network.send_report),
            (peers, "who_is_there", self.network.who_is_there),
            (peers, "client", contextlib.nullcontext),
            (process, "Process", SimulatedProcess),
            (sockets, "listen_for_gradients", lambda _: Listener(current().number)),
            (agents, "file_digests", lambda _: _DIGESTS),
            (agents, "require_unchanged", lambda *_: None),
            (log_lines, "_print", self._print),
            (layout, "own", lambda _: own),
            (layout, "make_own", lambda _: own),
            (checkpoint, "written", lambda *_: (0.0, 1)),
            (fingerprint, "fingerprint", lambda _: str(self.disk.programs_step or fingerprint.EMPTY)),
        ]
        doors += [(disk, name, getattr(self.disk, name)) for name in DISK]
        with contextlib.ExitStack() as stack:
            for module, name, door in doors:
                stack.enter_context(mock.patch.object(module, name, door))
            yield


DISK = (
    "read", "tail", "replace", "append", "edit", "overwrite", "create", "modified", "size", "move", "remove",
    "make_folder", "is_folder", "names", "open_lock", "take_lock",
)  # fmt: skip
