"""Children that train by virtual time, as those of trainer/training do, and what they do together."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tests.simulation import trace
from tests.simulation.world import current
from trainer.job import environment
from trainer.job.derived import is_server
from trainer.job.errors import Exit, TrainerError
from trainer.model_dir import checkpoint, disk, lease
from trainer.protocol import events
from trainer.protocol.events import Event
from trainer.protocol.orders import Final, Go, Stop, read_order
from trainer.protocol.stacks import State
from trainer.supervisor.children.process import Take

if TYPE_CHECKING:
    from tests.simulation.world import World

By = Literal["itself", "supervisor", "world"]


CRASH = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    fit()\n'
"""What Python writes to stderr before the line of an exception."""


class SimulatedProcess:
    """A child of ours, or a user's program, in the place of children/process.py."""

    def __init__(self) -> None:
        self.owner = current()
        self.world: World = self.owner.world
        self.world.children += 1
        self.number = self.pid = self.world.children
        self.runs = self.ready = False
        self.frozen = self.hangs = self.deaf = False
        self.stop_asked = False
        self.final: Final | None = None
        self.generation = 0
        self._thawed = asyncio.Event()
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._go: asyncio.Future[Go] = self.world.loop.create_future()
        self._exit: asyncio.Future[int] = self.world.loop.create_future()
        self._lives: list[asyncio.Task[None]] = []
        self.stacks = self
        self._on_report: Take | None = None
        """Takes a program's reports."""
        self._stderr = ""
        self.reported = False

    # The door. ------------------------------------------------------------------------------------

    async def start_child(
        self, words: Sequence[str], environ: Mapping[str, str], log: Path, take: Take | None, listener: object
    ) -> None:
        self._start(self._live(), self._beat())

    def listen(self, on_report: Take) -> str:
        self._on_report = on_report
        return "/simulated/reports"

    async def start_program(
        self, words: Sequence[str], environ: Mapping[str, str], folder: Path, log: Path, take: Take | None
    ) -> None:
        self.generation = int(environ[environment.GENERATION])
        self._start(self._run_program())

    def _start(self, *lives: Coroutine[Any, Any, None]) -> None:
        self.runs = True
        self.owner.children.append(self)
        self.owner.note(trace.ChildStarted, child=self.number)
        self._lives = [self.world.spawn(each) for each in lives]

    def order(self, line: bytes) -> None:
        match read_order(line.decode()):
            case Go() as go if not self._go.done():
                self._go.set_result(go)
            case Stop() if not self.deaf:
                self.stop_asked = True
            case Final() as final:
                self.final = final

    async def event_lines(self) -> AsyncIterator[bytes]:
        while line := await self._queue.get():
            yield line

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    async def take(self) -> tuple[State, str]:
        return "no answer", ""

    def waits_for_cpu(self) -> dict[str, float]:
        return {}

    async def end_rest(self) -> None:
        """It has started no processes."""

    until_copied = end_rest

    def printed(self) -> str:
        return ""

    def last_errors(self) -> str:
        return self._stderr

    @property
    def group_runs(self) -> bool:
        return False

    async def until_group_is_gone(self, deadline: float) -> None:
        """It has started no processes."""

    async def left(self) -> list[str]:
        return []

    def terminate(self) -> None:
        if not (self.deaf or self.frozen):
            self.world.loop.call_later(0.05, self.die, -signal.SIGTERM, "supervisor")

    def kill(self) -> None:
        self.die(-signal.SIGKILL, "supervisor")

    def close(self) -> None:
        """It has no pipes."""

    # What happens to it. --------------------------------------------------------------------------

    def die(self, code: int, by: By) -> None:
        if not self.runs:
            return
        self.runs = False
        now, owner = self.world.loop.now, self.owner
        self.world.history.events.append(trace.ChildEnded(now, owner.task.name, owner.number, self.number, code, by))
        for life in self._lives:
            life.cancel()
        self._queue.put_nowait(b"")
        self._exit.set_result(code)

    def thaw(self) -> None:
        self.frozen = False
        self._thawed.set()

    def send(self, event: Event) -> None:
        if self._on_report is None:
            self._queue.put_nowait(events.write_event(event).encode())
            return
        match event:
            case events.Step(step=step):
                report = {"step": step, "total": self.world.steps, "loss": 1.0}
                self.reported = True
                self.owner.call(partial(self._on_report, json.dumps(report).encode()))
            case events.PeerLost(text):
                self._stderr = f"{CRASH}tensorflow.python.framework.errors_impl.UnavailableError: {text}\n"
            case events.Failed(message=text):
                self._stderr = f"{CRASH}ValueError: {text}\n"

    def end(self, event: Event, code: int) -> None:
        """Its last event, and its end."""
        if self.runs:
            self.send(event)
            self.die(code, "itself")

    async def awake(self) -> None:
        while self.frozen or self.hangs:
            self._thawed.clear()
            await self._thawed.wait()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.awake()

    async def _live(self) -> None:
        spec, task, rng = self.world.spec, self.owner.task, self.world.rng
        await self.pause(rng.uniform(0.1, 1.0))
        self.send(events.Warm())
        go = await self._go
        self.generation = go.generation
        self.owner.note(trace.ChildOrdered, child=self.number, generation=go.generation, step=go.resume_step)
        await self.pause(rng.uniform(0.05, 0.5))
        if task.type == "evaluator":
            await self._score()
            return
        line = f"resume_step={go.resume_step}"
        served = is_server(spec, task.type)
        self.send(events.Start(line=line) if served else events.Start(go.resume_step, self.world.steps, line))
        self.ready = True
        self.world.trainings.join(self, go)

    async def _run_program(self) -> None:
        go = Go(self.generation, self.world.disk.programs_step)
        self.owner.note(trace.ChildOrdered, child=self.number, generation=go.generation, step=go.resume_step)
        await self.pause(self.world.rng.uniform(0.1, 1.0))
        self.ready = True
        self.world.trainings.join(self, go)

    async def _score(self) -> None:
        scored = 0
        while True:
            await self.pause(0.5)
            newest = max(checkpoint.steps(self.world.spec.directory), default=0)
            if newest > scored:
                await self.pause(self.world.rng.uniform(0.05, 0.5))
                scored = newest
                self.send(events.Scored(scored, {"accuracy": 0.5}))
            if self.final is not None and scored >= self.final.step:
                self.end(events.Done(step=scored), 0)

    async def _beat(self) -> None:
        while True:
            await self.pause(self.world.spec.deadlines.hang / 3)
            self.send(events.Alive())

    async def save(self, step: int) -> bool:
        """Writes a checkpoint; returns whether it is complete."""
        await self.pause(self.world.rng.uniform(0.01, 0.3))
        if not self.runs:
            return False
        if self._on_report is not None:  # nobody keeps a program from its files
            self.world.disk.programs_step = step
            return True
        directory, agent = self.world.spec.directory, self.owner.agent
        assert agent is not None
        saved: asyncio.Future[bool] = self.world.loop.create_future()

        def write() -> None:
            """In the context of its supervisor, whose disk it has."""
            try:
                lease.require(directory, agent.incarnation)
                path = checkpoint.folder(directory) / checkpoint.name(step) / "meta.json"
                disk.replace(path, [json.dumps({"step": step})])
            except (OSError, TrainerError) as error:
                code = error.code if isinstance(error, TrainerError) else Exit.USER
                self.end(events.Failed(int(code), str(error)), int(code))
                saved.set_result(False)
                return
            self.owner.note(trace.CheckpointWritten, child=self.number, generation=self.generation, step=step)
            self.send(events.Saved(step, 0.1, 0.1, 1))
            saved.set_result(True)

        self.owner.call(write)
        return await saved

    async def finish(self, step: int) -> None:
        self.send(events.Finishing("evaluates"))
        await self.pause(self.world.rng.uniform(0.1, 1.0))
        self.end(events.Done(step=step, test={"accuracy": 0.5}), 0)

    def done(self, step: int) -> None:
        """It has made all steps, and is not the chief's: a child waits to be ended, a program ends."""
        if self._on_report is None:
            self.send(events.Trained())
        else:
            self.end(events.Done(step=step), 0)


class Training:
    """The children of one generation. Those of multi_worker_mirrored make each step together; under parameter_server
    the chief's makes them all, while the ps and at least one worker serve."""

    def __init__(self, world: World, go: Go) -> None:
        self.world, self.go = world, go
        self.children: dict[str, SimulatedProcess] = {}
        self.mirrored = world.spec.strategy == "multi_worker_mirrored"
        self.names = [name for name in world.tasks if not name.startswith("evaluator")]
        self.begun = False
        self.made: dict[str, int] = {}
        self.following: list[int] = []
        """The ports to which those in a ring connect."""

    def join(self, child: SimulatedProcess, go: Go) -> None:
        self.children[child.owner.task.name] = child
        self.following += [go.ring.following] if go.ring else []
        if not self.begun and len(self.children) == len(self.names):
            self.begun = True
            if not self.following or sorted(self.following) == sorted(c.owner.number for c in self.children.values()):
                self.world.spawn(self._train())

    @property
    def chief(self) -> SimulatedProcess:
        return self.children[self.names[0]]

    async def _train(self) -> None:
        step, steps = self.go.resume_step, self.world.steps
        while step < steps:
            await asyncio.sleep(self.world.rng.uniform(0.05, 0.3))
            if not await self._all_there():
                return
            step += 1
            makers = [*self.children.values()] if self.mirrored else [self.chief]
            for child in makers:
                child.owner.note(trace.StepMade, child=child.number, generation=self.go.generation, step=step)
                workers = None if self.mirrored else self._rows()
                child.send(events.Step(step=step, workers=workers, figures={"loss": 1.0}))
            stop = any(child.stop_asked for child in makers)
            if (stop or step % self.world.checkpoint_steps == 0 or step == steps) and not await self.chief.save(step):
                await self._all_there()
                return
            if stop and step < steps:
                for child in makers:
                    child.end(events.Stopped(step), 0)
                return
        for child in self.children.values() if self.mirrored else ():
            if child is not self.chief and child.runs:
                child.done(step)
        if self.chief.runs:
            await self.chief.finish(step)

    def _rows(self) -> dict[str, dict[str, object]]:
        """What the chief's child tells of the ps-workers: each that serves makes steps of its own."""
        for name in self.names:
            if name.startswith("worker") and self._serves(name):
                self.made[name] = self.made.get(name, 0) + 1
        return {name: {"step": made} for name, made in self.made.items()}

    async def _all_there(self) -> bool:
        """Whether all are there without whom no step can be made; those that notice that one is not end with an
        error."""
        while not self.mirrored and not any(self._serves(name) for name in self.names if name.startswith("worker")):
            if not self.chief.runs:
                return False
            await asyncio.sleep(0.2)
        needed = [c for name, c in self.children.items() if self.mirrored or not name.startswith("worker")]
        while all(child.runs for child in needed) and not all(self._reached(child) for child in needed):
            await asyncio.sleep(0.2)
        if all(child.runs for child in needed):
            return True
        for child in needed if self.mirrored else [self.chief]:
            if child.runs:
                lost = events.PeerLost("UNAVAILABLE: connection reset by peer")
                self.world.loop.call_later(self.world.rng.uniform(0.001, 0.5), child.end, lost, 1)
        return False

    def _serves(self, name: str) -> bool:
        return self.children[name].runs and self._reached(self.children[name])

    def _reached(self, child: SimulatedProcess) -> bool:
        here, there = self.chief.owner.machine, child.owner.machine
        cut = here is not there and (here.no_in or here.no_out or there.no_in or there.no_out)
        return not (child.frozen or child.hangs or cut)


class Trainings:
    def __init__(self, world: World) -> None:
        self._world = world
        self._of: dict[tuple[int, str], Training] = {}

    def join(self, child: SimulatedProcess, go: Go) -> None:
        """Children find each other by their addresses, and those of a ring by its key: those of one generation are one
        training."""
        key = go.generation, go.ring.key if go.ring else ""
        self._of.setdefault(key, Training(self._world, go)).join(child, go)
