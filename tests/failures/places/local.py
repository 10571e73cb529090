"""A cell's job under `trainer local`: its tasks are processes, and their disk is a file system of its own."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from tests.failures import memory
from tests.failures.cells import Cell
from tests.failures.disk import empty, fill, small
from tests.failures.files import Files
from tests.failures.jobs import spec_of
from tests.failures.run import Fault
from tests.tools.harness import Job


class LocalJob:
    """One job, which may be started again."""

    def __init__(self, folder: Path, strategy: str, cell: Cell | None) -> None:
        self._folder, self._disk = folder, folder / "disk"
        self.files = Files(folder / "counts", self._disk / "run")
        self.files.counts.mkdir(parents=True)
        self._disk.mkdir()
        spec = spec_of("local", strategy, str(self.files.counts), cell)
        self._spec = {**spec, "model_dir": str(self.files.model_dir)}
        self._outputs: list[str] = []
        self._small = cell is not None and cell.fault == "disk"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> LocalJob:
        if self._small:
            self._stack.enter_context(small(self._disk))
        self._job = self._stack.enter_context(Job(self._folder, self._spec))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def output(self) -> str:
        return "\n".join([*self._outputs, self._job.output])

    def over(self) -> bool:
        return self._job.over()

    def wait(self, timeout: float) -> int:
        return self._job.wait(timeout)

    def again(self) -> None:
        self._outputs.append(self._job.output)
        self._job = self._stack.enter_context(Job(self._folder, self._spec))

    def aim(self, cell: Cell) -> Fault:
        if cell.fault == "stop all":
            return Fault(lambda: self._job.process.send_signal(signal.SIGTERM))
        if cell.fault == "disk":
            return Fault(lambda: fill(self._disk), lambda: empty(self._disk))
        supervisor, child = (self._job.pid(cell.victim, which) for which in ("pid", "child_pid"))
        if cell.fault == "memory":
            return Fault(lambda: memory.starve(child))
        number, pids = {
            "kill": (signal.SIGKILL, [supervisor]),
            "crash": (signal.SIGKILL, [child]),
            "stop": (signal.SIGTERM, [supervisor]),
            "freeze": (signal.SIGSTOP, [supervisor, child]),
            "hang": (signal.SIGSTOP, [child]),
        }[cell.fault]
        return Fault(lambda: _send(number, pids), lambda: _go_on(pids))


start = LocalJob


def _send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, number)


def _go_on(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it may have been killed by now
            os.kill(pid, signal.SIGCONT)
