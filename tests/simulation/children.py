"""Children that train by virtual time, as those of trainer/training do, and what they do together."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation import trace
from tests.simulation.world import World, current
from trainer.job.derived import is_server
from trainer.job.errors import Exit
from trainer.model_dir import checkpoint, layout, lease
from trainer.protocol import events
from trainer.protocol.events import Event
from trainer.protocol.orders import Final, Go, Silent, Stop, Where, read_order
from trainer.supervisor.children.process import Take


class SimulatedProcess:
    """In the place of children/process.py."""

    def __init__(self) -> None:
        self.owner = current()
        self.world: World = self.owner.world
        self.world.children += 1
        self.number = self.pid = self.world.children
        self.runs = False
        self.frozen = self.hangs = self.deaf = False
        self.thawed = asyncio.Event()
        self.queue: asyncio.Queue[bytes] = asyncio.Queue()
        self.exit: asyncio.Future[int] = self.world.loop.create_future()
        self.go: asyncio.Future[Go] = self.world.loop.create_future()
        self.stop_asked = False
        self.stacks = self
        self.life: asyncio.Task[None] | None = None
        self.generation = 0
        self.ready = False

    # The door. ------------------------------------------------------------------------------------

    async def start_child(self, words: Sequence[str], environ: Mapping[str, str], log: Path, take: Take | None) -> None:
        self.runs = True
        self.owner.children.append(self)
        self.owner.note(trace.ChildStarted, child=self.number)
        self.life = self.world.spawn(self._live())

    def order(self, line: bytes) -> None:
        match read_order(line.decode()):
            case Go() as go if not self.go.done():
                self.go.set_result(go)
            case Stop():
                self.stop_asked = True
            case Where() | Silent() | Final() | None:
                pass

    async def event_lines(self) -> AsyncIterator[bytes]:
        while line := await self.queue.get():
            yield line

    async def wait(self) -> int:
        return await asyncio.shield(self.exit)

    def kill(self) -> None:
        self.die(-signal.SIGKILL, "supervisor")

    async def take(self) -> tuple[str, str]:
        return "no answer", ""

    def waits_for_cpu(self) -> dict[str, float]:
        return {}

    async def end_rest(self) -> None:
        pass

    async def until_copied(self) -> None:
        pass

    def printed(self) -> str:
        return ""

    def last_errors(self) -> str:
        return ""

    def close(self) -> None:
        pass

    # What it does. --------------------------------------------------------------------------------

    def die(self, code: int, by: str) -> None:
        if self.runs:
            self.runs = False
            self.world.history.events.append(
                trace.ChildEnded(self.world.loop.now, self.owner.task.name, self.owner.number, self.number, code, by)
            )
            if self.life is not None:
                self.life.cancel()
            self.queue.put_nowait(b"")
            self.exit.set_result(code)
            self.world.changed.set()

    def send(self, event: Event) -> None:
        self.queue.put_nowait(events.write_event(event).encode())

    def fail(self, event: Event, code: int) -> None:
        self.send(event)
        self.die(code, "itself")

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        while self.frozen or self.hangs:
            self.thawed.clear()
            await self.thawed.wait()

    async def _live(self) -> None:
        world, owner = self.world, self.owner
        beat = world.spawn(self._beat())
        try:
            await self.pause(world.rng.uniform(0.1, 1.0))
            self.send(events.Warm())
            go = await self.go
            self.generation = go.generation
            owner.note(trace.ChildOrdered, child=self.number, generation=go.generation, step=go.resume_step)
            await self.pause(world.rng.uniform(0.05, 0.5))
            self.send(events.Start(step=go.resume_step, steps=world.spec.train.steps, line="started"))
            self.ready = True
            world.trainings.join(self, go)
            await self.world.loop.create_future()  # the training goes on from here
        finally:
            beat.cancel()

    async def _beat(self) -> None:
        while True:
            await self.pause(self.world.spec.deadlines.hang / 3)
            self.send(events.Alive())


class Training:
    """The children of one generation, under multi_worker_mirrored."""

    def __init__(self, world: World, go: Go) -> None:
        self.world, self.go = world, go
        self.children: dict[str, SimulatedProcess] = {}
        self.required = [name for name in world.tasks if not name.startswith("evaluator")]

    def join(self, child: SimulatedProcess) -> None:
        self.children[child.owner.task.name] = child
        if len(self.children) == len(self.required):
            self.world.spawn(self._train())

    @property
    def chief(self) -> SimulatedProcess:
        return self.children[self.required[0]]

    async def _train(self) -> None:
        world, children = self.world, list(self.children.values())
        step, total, every = self.go.resume_step, world.spec.train.steps, world.spec.train.checkpoint_steps
        while step < total:
            await asyncio.sleep(world.rng.uniform(0.05, 0.3))
            if not await self._all_there():
                return
            step += 1
            for child in children:
                child.owner.note(trace.StepMade, child=child.number, generation=self.go.generation, step=step)
                child.send(events.Step(step=step, figures={"loss": 1.0}))
            stop = any(child.stop_asked for child in children)
            if (stop or step % every == 0 or step == total) and not await self._save(step):
                return
            if stop and step < total:
                for child in children:
                    child.fail(events.Stopped(step), 0)
                return
        for child in children:
            if child is not self.chief:
                child.send(events.Trained())
        self.chief.send(events.Finishing("evaluates"))
        await self.chief.pause(world.rng.uniform(0.1, 1.0))
        if self.chief.runs:
            self.chief.fail(events.Done(step=total, test={"accuracy": 0.5}), 0)

    async def _all_there(self) -> bool:
        """Whether no child is missing; a child that notices that one is ends with an error."""
        while any(child.frozen or child.hangs for child in self.children.values() if child.runs):
            self.world.changed.clear()
            await self.world.changed.wait()
        if all(child.runs for child in self.children.values()):
            return True
        for child in self.children.values():
            if child.runs:
                self.world.loop.call_later(self.world.rng.uniform(0.001, 0.5), child.fail, events.PeerLost("connection reset by peer"), 1)
        return False

    async def _save(self, step: int) -> bool:
        """Whether the chief's child has written a checkpoint."""
        await self.chief.pause(self.world.rng.uniform(0.01, 0.3))
        if not self.chief.runs:
            return await self._all_there()
        directory, agent = self.world.spec.directory, self.chief.owner.agent
        assert agent is not None
        if not lease.is_held(directory, agent.incarnation):
            self.chief.fail(events.Failed(int(Exit.REPLACED), "another chief has taken this one's place"), 20)
            return False
        path = checkpoint.folder(directory) / checkpoint.name(step)
        path.mkdir(parents=True, exist_ok=True)
        (path / "meta.json").write_text(json.dumps({"step": step}))
        self.chief.owner.note(trace.CheckpointWritten, child=self.chief.number, generation=self.go.generation, step=step)
        self.chief.send(events.Saved(step, 0.1, 0.1, 1))
        return True


class Trainings:
    def __init__(self, world: World) -> None:
        self._world = world
        self._of: dict[int, Training] = {}

    def join(self, child: SimulatedProcess, go: Go) -> None:
        self._of.setdefault(go.generation, Training(self._world, go)).join(child)
