"""The child of a job with a program: the user's own process. It gets no orders, and may report its progress."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from trainer import clocks, reporting
from trainer.job import environment, program
from trainer.job.cluster import Task
from trainer.job.errors import Exit
from trainer.job.spec import Deadlines, JobSpec
from trainer.protocol import events
from trainer.protocol.facts import Cause, Loss
from trainer.protocol.log_lines import log_line
from trainer.protocol.tracebacks import blames_peer, peer_is_silent, reason
from trainer.supervisor.children import child_environ, process
from trainer.supervisor.children.child import Child, OnChange
from trainer.supervisor.children.process import Take

MOST_LEFT = 3
"""How many of the processes that a program has left a warning names."""
FIRST_SIGNAL = 128
"""Exit codes from here on are those that a shell gives to a program ended by a signal."""
_FROM_OUTSIDE = {-signal.SIGHUP, -signal.SIGINT, -signal.SIGKILL, -signal.SIGTERM}
"""Exit codes that a program's last words do not explain: what it logged in the middle of its work is no reason."""


class Program(Child):
    """One run of the user's program."""

    def __init__(self, spec: JobSpec, task: Task, on_change: OnChange, clock: Callable[[], float]) -> None:
        super().__init__(task, on_change, clock)
        self._spec, self._task = spec, task.name
        self._folder = program.folder(spec)
        self._ends_at: float | None = None
        self.reported = False

    @classmethod
    async def run(
        cls,
        spec: JobSpec,
        task: Task,
        log: Path,
        more_environ: Mapping[str, str],
        generation: int,
        on_change: OnChange,
        clock: Callable[[], float] = clocks.monotonic,
        take: Take | None = None,
    ) -> Program:
        """Starts the program of this task. Its stderr is copied to ours and to the log.

        Args:
            take: as for Child.

        Raises:
            UserError: it cannot be found or executed.
        """
        child = cls(spec, task, on_change, clock)
        child.generation = generation
        child._process = process.Process()
        try:
            environ = {
                **child_environ.of_program(spec, task),
                environment.GENERATION: str(generation),
                **more_environ,
                environment.REPORTS: child._process.listen(child._take_report),
            }
            words = program.command(spec, spec.program_of(task.type), environ)
            try:
                await child._process.start_program(words, environ, child._folder, log, take)
            except OSError as error:
                raise program.not_started(words[0], error) from None
        except BaseException:
            child._process.close()
            raise
        child.status.child_pid = child._process.pid
        child.times["go"] = clocks.monotonic()
        child._watcher = asyncio.create_task(child._watch())
        return child

    def silence_limit(self, deadlines: Deadlines) -> float | None:
        if not self.reported:
            return None
        return deadlines.evaluation if self.status.made_all_steps else deadlines.progress

    def silence(self, seconds: float) -> Loss:
        deadline = "evaluation" if self.status.made_all_steps else "progress"
        return Loss(Cause.HANG, seconds=seconds, setting=f"deadlines.{deadline}")

    @property
    def answers_orders(self) -> bool:
        return False

    def activity(self) -> str:
        return "" if self.status.step is None else f"after step {self.status.step}"

    def _made(self) -> object:
        """Also what it reports beside its step: it may validate, or read its data."""
        return self.status.step, dict(self.status.figures)

    @property
    def failed(self) -> bool:
        return self.failure is not None and not self.blames_peer

    def stop(self) -> None:
        """Asks it to end: then its exit code is not its own verdict."""
        self.let_go()

    def let_go(self) -> None:
        self.dismissed = True
        if self._ends_at is None and self.alive:
            self._ends_at = clocks.monotonic() + self._spec.deadlines.stop
            self._process.terminate()
            # TensorFlow may have replaced the action of SIGTERM by one that does nothing (preemption_notifier.cc).
            asyncio.get_running_loop().call_later(self._spec.deadlines.stop, self._kill_out_of_time)

    def _kill_out_of_time(self) -> None:
        """Kills it at deadlines.stop, and says so: what it has not saved by then is lost."""
        if self.alive and (self._process.runs or self._process.group_runs):
            self.out_of_time = True
            late = f"it had not ended within {self._spec.deadlines.stop:g} s of SIGTERM (deadlines.stop)"
            log_line(f"{self._task}: its program was killed: {late}")
        self.kill()

    def _how_it_ended(self) -> Loss:
        if self.killed_for or self.out_of_memory:
            return super()._how_it_ended()
        assert self.exit is not None
        if self.exit in _FROM_OUTSIDE:
            return exit_loss(self.exit)
        loss = exit_loss(self.exit, reason(self._process.last_errors(), self._folder, self.exit))
        if self.blames_peer and peer_is_silent(loss.text):
            return Loss(Cause.PEER_SILENT, str(loss))
        return loss

    def _take_report(self, data: bytes) -> None:
        """Takes a report, whose content the user's code has written."""
        try:
            report = json.loads(data)
        except (ValueError, RecursionError):
            return
        if not isinstance(report, dict):
            return
        total = report.pop("total", None)
        figures = {}
        for name, value in report.items():
            with contextlib.suppress(TypeError, ValueError):
                figures[name] = reporting.plain(name, value)
        counted = {"step": step} if (step := figures.pop("step", None)) is not None else {}
        event = events.read_event(json.dumps({**counted, "figures": figures, "event": "step"}).encode())
        if event is None:
            return
        self.reported, before = True, self.status.known()
        if isinstance(total, int) and not isinstance(total, bool) and 0 <= total < 2**63:
            self.status.steps = total
        self._take(event)
        if before != self.status.known():  # a loop that repeats the same figures hangs
            self.last_sign = self._clock()

    async def _watch(self) -> None:
        code = await self._process.wait()
        if self._ends_at is not None:  # what a shell runs may still save
            await self._process.until_group_is_gone(self._ends_at)
        if code == 0 and self._ends_at is None and self.killed_for is None:
            await self._look_at_what_is_left()
        await self._process.end_rest()
        await self._process.until_copied()
        self._process.close()
        if code == 0 and not self.dismissed and self.killed_for is None:
            self.result = events.Done(step=self.status.step)
        elif self.killed_for is None and not self.dismissed:
            self.exit = code  # for the reason
            self.blames_peer = blames_peer(self._process.last_errors())
            if 0 < code < FIRST_SIGNAL:
                self.failure = int(Exit.PROGRAM), f"its program {self._how_it_ended()}"
        self._ended(code)

    async def _look_at_what_is_left(self) -> None:
        """Warns of processes that it leaves: the training may be one, of a script that has started it with &."""
        if left := await self._process.left():
            self.left_behind = (
                f"{self._task}: its program ended with exit code 0 and left processes that still ran, and were ended: "
                f"{', '.join(left[:MOST_LEFT])}; a script that starts its training with & has to end with `wait`"
            )
            log_line(f"warning: {self.left_behind}")


def exit_loss(status: int, text: str = "") -> Loss:
    """How a process ended, by its exit status.

    Args:
        text: its last words.
    """
    number = -status if status < 0 else status - FIRST_SIGNAL
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}" if status < 0 else ""
    if status < 0:
        return Loss(Cause.KILLED, text, signal=name)
    return Loss(Cause.PROGRAM_ENDED, text, signal=name or None, status=status)
