"""A child process, as its supervisor manages it: starts it, sends it orders, collects its events, kills it."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from trainer import clocks, host
from trainer.job.cluster import Task
from trainer.job.spec import Deadlines
from trainer.protocol import events
from trainer.protocol.child import ChildStatus, measured
from trainer.protocol.events import Event
from trainer.protocol.facts import Cause, Loss, failure_code
from trainer.protocol.orders import Final, Go, Neighbours, Order, Silent, Stop, Where, write_order
from trainer.protocol.stacks import State
from trainer.protocol.tracebacks import peer_is_silent
from trainer.supervisor.children import child_environ, process
from trainer.supervisor.children.child_status import take as merge
from trainer.supervisor.children.process import Take
from trainer.supervisor.children.step_times import StepTimes


@dataclass(frozen=True)
class Exited:
    """The process has ended. Detected by its supervisor; a child cannot send it."""


OnChange: TypeAlias = "Callable[[Child, Event | Exited], None]"


class Child:
    """One process. `status` merges its events; `on_change` is called at each event, and when the process ends."""

    def __init__(self, task: Task, on_change: OnChange, clock: Callable[[], float] = clocks.monotonic) -> None:
        self._task_type, self._on_change, self._clock = task.type, on_change, clock
        self._oom_kills = host.oom_kills()
        self._process: process.Process
        self._watcher: asyncio.Task[None]
        self.generation = 0
        self.warm = False
        self.last_sign = clock()
        self._half_silent: dict[str, float] | None = None
        """For how long each thread had waited for a CPU when half of the time had passed without a sign of life."""
        self.status = ChildStatus()
        self._steps = StepTimes(lambda: self._clock())
        self.workers: dict[str, ChildStatus] = {}
        """The coordinator's measurements of each ps-worker."""
        self.result: events.Done | None = None
        self.times: dict[str, float] = {}
        """The times of the order to start and of the first event of each kind, by time.monotonic()."""
        self.exit: int | None = None
        self.failure: tuple[int, str] | None = None
        """Exit code and text of the error that it ends with."""
        self.blames_peer = False
        """Whether a lost peer may have caused that error."""
        self.killed_for: Loss | None = None
        self._silent: list[str] = []
        self.doing: str | None = None
        """The child's answer to the last order Where."""
        self.dismissed = False
        """Whether it was killed because its generation is over."""
        self.left_behind = ""
        """A warning about processes that it had started and that still ran when it ended by itself."""
        self.out_of_time = False
        """Whether it was killed because it had not ended within deadlines.stop."""

    @classmethod
    async def start(
        cls,
        task: Task,
        log: Path,
        more_environ: dict[str, str],
        on_change: OnChange,
        clock: Callable[[], float] = clocks.monotonic,
        take: Take | None = None,
        listener: socket.socket | None = None,
    ) -> Child:
        """Starts the process. Its stderr, where TensorFlow logs, goes to the log file.

        Args:
            take: called with what it prints, which is copied to stdout; without, it inherits that.
            listener: what it listens with for gradients.
        """
        log.open("ab").close()  # an error before anything is made
        child = cls(task, on_change, clock)
        child._process = process.Process()
        words, environ = host.command("trainer.training.main"), {**child_environ.of_child(task), **more_environ}
        await child._process.start_child(words, environ, log, take, listener)
        child.status.child_pid = child._process.pid
        child._watcher = asyncio.create_task(child._watch())
        return child

    @property
    def alive(self) -> bool:
        return self.exit is None

    def current(self) -> ChildStatus:
        """Its status now: without a new step its rate falls."""
        return self.status.slowed(self.slowness)

    def current_workers(self) -> dict[str, ChildStatus]:
        """The same of each ps-worker that it coordinates."""
        slowness = self.slowness
        return {name: row.slowed(slowness) for name, row in self.workers.items()}

    @property
    def slowness(self) -> float:
        """By how much longer than is usual it has made no step; 1 while it makes steps, or has none to make."""
        return self._steps.slowness if self._makes_steps else 1.0

    @property
    def without_step(self) -> float:
        """Seconds since its last step, if that is unusually long; otherwise 0."""
        return self._steps.seconds if self._makes_steps else 0.0

    @property
    def _makes_steps(self) -> bool:
        status = self.status
        return self.alive and not (status.made_all_steps or status.evaluating or status.finishing or status.trained)

    def go(self, generation: int, resume_step: int, ring: Neighbours | None = None) -> None:
        self.generation = generation
        self.times["go"] = clocks.monotonic()
        self._order(Go(generation, resume_step, ring))

    def stop(self) -> None:
        """Asks it to save a checkpoint and end."""
        self._order(Stop())

    def finalise(self, step: int, score: bool) -> None:
        """Orders an evaluator to score, or only to export, the last checkpoint."""
        self._order(Final(step, score))

    def count_out(self, silent: list[str]) -> None:
        """Sends it the tasks that are silent, if they have changed."""
        if silent != self._silent:
            self._silent = silent
            self._order(Silent(frozenset(silent)))

    def ask_what_it_does(self) -> None:
        self.doing = None
        self._order(Where())

    @property
    def answers_orders(self) -> bool:
        return self.warm

    def activity(self) -> str:
        """What it does, in a few words that follow "is"; empty if that is not known."""
        status = self.status
        if not self.warm:
            return "in the imports"
        if status.line is None and status.step is None:
            return "in the preparation: data(), model(), the checkpoint"
        if status.evaluating or status.finishing or status.trained:
            return f"in the evaluation after step {status.step}" if status.step else "in the evaluation"
        return self.doing or (f"after step {status.step}" if status.step else "")

    def _made(self) -> object:
        """What changes as long as it makes steps."""
        return self.status.step

    def kill(self, why: Loss | None = None) -> None:
        if self.alive:
            self.killed_for = why
            self._process.kill()

    def let_go(self) -> None:
        """Begins to end it: its generation is over."""
        self.dismissed = True
        self.kill()

    async def dismiss(self) -> None:
        """Ends it: its generation is over."""
        self.let_go()
        await self.ended()

    @property
    def printed(self) -> str:
        """The ends of its outputs that are copied."""
        return self._process.printed()

    async def take_stacks(self) -> tuple[State, str]:
        """Why there are no stacks of its threads, or else faulthandler's text."""
        return await self._process.stacks.take()

    @property
    def failed(self) -> bool:
        """Whether it ended with an error of its own, which would repeat."""
        return False

    def silence_limit(self, deadlines: Deadlines) -> float | None:
        """Seconds of silence after which it hangs; None if its silence means nothing."""
        # The import of TensorFlow holds the GIL while its libraries load: until then silence does not mean a hang.
        return deadlines.hang if self.warm else deadlines.start

    def hangs(self, limit: float) -> bool:
        """Whether it has given no sign of life for that long. On a starved machine it may be unable to: of the second
        half of that time the part does not count in which its threads waited for a CPU."""
        now = self._clock()
        quiet = now - self.last_sign
        if quiet <= limit / 2:
            self._half_silent = None
            return False
        if self._half_silent is None:
            self._half_silent = self._waits()
            return quiet > limit
        if quiet <= limit:
            return False
        before = self._half_silent
        waited = max((seconds - before.get(thread, 0.0) for thread, seconds in self._waits().items()), default=0.0)
        return quiet - waited > limit

    def _waits(self) -> dict[str, float]:
        return self._process.waits_for_cpu()

    def silence(self, seconds: float) -> Loss:
        """Why a child that hangs is killed, after that many seconds without a sign of life."""
        return Loss(Cause.HANG, seconds=seconds)

    async def ended(self) -> None:
        await asyncio.shield(self._watcher)

    def loss(self) -> Loss:
        """How it ended, with the error that it reported."""
        code, error = (int(failure_code(self.failure[0])), self.failure[1]) if self.failure else (0, "")
        return replace(self._how_it_ended(), code=code, error=error, blames_peer=self.blames_peer)

    def _how_it_ended(self) -> Loss:
        if self.killed_for:
            return self.killed_for
        assert self.exit is not None
        if self.out_of_memory:
            setting = f"tasks.{self._task_type}.memory"
            return Loss(Cause.OUT_OF_MEMORY, signal="SIGKILL", memory=host.memory_limit() or None, setting=setting)
        if self.exit < 0:
            return Loss(Cause.KILLED, signal=signal.Signals(-self.exit).name)
        if text := self.status.peer_lost:
            return Loss(Cause.PEER_SILENT if peer_is_silent(text) else Cause.PEER_LOST, text)
        return Loss(Cause.ERROR) if self.failure else Loss(Cause.EXITED, status=self.exit)

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process of this container while this one ended by SIGKILL, not by us."""
        killed = self.exit == -signal.SIGKILL and self.killed_for is None and not self.dismissed
        return killed and host.oom_kills() > self._oom_kills

    def _order(self, order: Order) -> None:
        if self.alive:
            self._process.order(write_order(order))

    async def _watch(self) -> None:
        reading = asyncio.create_task(self._read())
        code = await self._process.wait()
        await self._process.end_rest()
        # A process started by the user's code may have inherited the pipe and keep it open.
        await asyncio.wait({reading}, timeout=process.LAST_WORDS_SECONDS)
        reading.cancel()
        await self._process.until_copied()
        self._process.close()
        self._ended(code)

    def _ended(self, code: int) -> None:
        self.exit = code
        self._on_change(self, Exited())

    async def _read(self) -> None:
        async for line in self._process.event_lines():
            if (event := events.read_event(line)) is not None:
                self.last_sign = self._clock()
                if not isinstance(event, events.Alive):
                    self._take(event)

    def _take(self, event: Event) -> None:
        self.times.setdefault(events.name_of(event), clocks.monotonic())
        merge(self.status, event)
        match event:
            case events.Warm():
                self.warm = True
            case events.Doing(text):
                self.doing = text
            case events.PeerLost(_, code, message):
                self.blames_peer = True
                self.failure = (code, message) if code is not None and message is not None else None
            case events.Failed(code, message):
                self.failure = (code, message)
            case events.Step(_, workers):
                self._steps.made(self._made())
                if workers is not None:
                    self.workers = {name: measured(row) for name, row in workers.items()}
            case events.EpochEnd():
                self._steps.pause()
            case events.Done():
                self.result = event
        self._on_change(self, event)
