"""A process that a task starts, with its pipes, outputs and stacks, and with the processes that it starts itself.

child.py and program.py say what it means. A simulated world has processes of its own (tests/simulation/).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from trainer import host
from trainer.job import environment
from trainer.protocol import events
from trainer.supervisor.children import orphans
from trainer.supervisor.children.output import STDERR, STDOUT, Output
from trainer.supervisor.children.stack_pipes import StackPipes

LAST_WORDS_SECONDS = 0.5
"""How long the output of a process is read after its end."""
MOST_REPORTS = 100
"""How many reports are read in one turn of the event loop."""
REPORT_BYTES = 1 << 16
Take: TypeAlias = "Callable[[bytes], None]"
_numbers = itertools.count(1)


class Process:
    """One process. It is started once, and closed once it has ended."""

    def __init__(self) -> None:
        self._mark = orphans.mark(next(_numbers))
        self._process: asyncio.subprocess.Process
        self._events: asyncio.StreamReader
        self._stdout: Output | None = None
        self._stderr: Output | None = None
        self._reports: socket.socket | None = None
        self._on_report: Take = lambda _: None
        self.stacks = StackPipes()

    # The start. -----------------------------------------------------------------------------------

    async def start_child(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        log: Path,
        take: Take | None,
        listener: socket.socket | None = None,
    ) -> None:
        """Starts a child of ours: it gets orders by its stdin, and sends events by a pipe of their own.

        Args:
            log: the file for its stderr, where TensorFlow logs.
            take: called with what it prints, which is copied to stdout; without, it inherits that.
            listener: what it listens with for gradients.

        Raises:
            OSError: it cannot be started.
        """
        self._stdout = None if take is None else Output(STDOUT, take=take)
        self._stderr = Output(None, log=log)
        ours, theirs = os.pipe()
        environ, inherited = {**environ, environment.EVENTS: str(theirs)}, [theirs]
        if listener is not None:
            environ, inherited = {**environ, environment.GRADIENTS: str(listener.fileno())}, [theirs, listener.fileno()]
        try:
            await self._spawn(words, environ, inherited, asyncio.subprocess.PIPE)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._events = asyncio.StreamReader(limit=events.EVENT_BYTES)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._events), os.fdopen(ours, "rb")
        )

    async def start_program(
        self, words: Sequence[str], environ: Mapping[str, str], folder: Path, log: Path, take: Take | None
    ) -> None:
        """Starts a program of the user's. Its stderr is copied to ours and to the log.

        Raises:
            OSError: it cannot be started.
        """
        self._stdout = Output(STDOUT, take=take or (lambda _: None))
        self._stderr = Output(STDERR, log=log)
        await self._spawn(words, environ, [], asyncio.subprocess.DEVNULL, folder)

    async def _spawn(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        pipes: Sequence[int],
        stdin: int,
        folder: Path | None = None,
    ) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *words,
                stdin=stdin,
                stdout=self._stdout.theirs if self._stdout else None,
                stderr=self._stderr.theirs if self._stderr else None,
                pass_fds=[*pipes, self.stacks.theirs],
                env={**environ, environment.CHILD: self._mark, **self.stacks.environ},
                cwd=folder,
                start_new_session=True,
            )
        except BaseException:
            for output in self._outputs():
                output.close()
            self.close()
            raise
        host.may_dump(self._process.pid)
        self.stacks.started()
        for output in self._outputs():
            output.start()

    def listen(self, on_report: Take) -> str:
        """Receives a program's reports; returns the path for them, by which processes that it starts report too."""
        path = str(orphans.folder(self._mark) / "reports")
        self._on_report = on_report
        self._reports = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reports.setblocking(False)
        self._reports.bind(path)
        asyncio.get_running_loop().add_reader(self._reports, self._read_reports)
        return path

    def _read_reports(self) -> None:
        """Takes the reports that wait, at most MOST_REPORTS: new ones may come as fast as they are read."""
        assert self._reports is not None
        with contextlib.suppress(OSError):
            for _ in range(MOST_REPORTS):
                self._on_report(self._reports.recv(REPORT_BYTES))

    # While it runs. -------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.returncode is None

    @property
    def group_runs(self) -> bool:
        """Whether a process of its group runs, perhaps without it."""
        return orphans.runs(self.pid)

    def order(self, line: bytes) -> None:
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(line)

    async def event_lines(self) -> AsyncIterator[bytes]:
        """The lines of its events, until the pipe ends."""
        while not self._events.at_eof():
            try:
                yield await self._events.readline()
            except ValueError:  # longer than EVENT_BYTES
                yield b""

    def waits_for_cpu(self) -> dict[str, float]:
        """For how many seconds each of its threads has waited for a CPU."""
        return host.waits_for_cpu(self.pid)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process alone."""
        # Not its send_signal(): that one polls, and may take the exit code from asyncio (python/cpython#87744).
        with contextlib.suppress(ProcessLookupError):
            if self.runs:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL to the process and its group."""
        self.send(signal.SIGKILL)
        orphans.kill_group(self.pid)

    def terminate(self) -> None:
        """Sends SIGTERM to all processes of its group, as a terminal sends Ctrl-C."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGTERM)

    # The end. -------------------------------------------------------------------------------------

    async def wait(self) -> int:
        """Its exit code; the negative number of the signal that ended it."""
        return await self._process.wait()

    async def until_group_is_gone(self, deadline: float) -> None:
        """Waits for the processes of its group to end, at most until that time on the monotonic clock."""
        await orphans.until_gone(self.pid, deadline)

    async def left(self) -> list[str]:
        """The names of the processes that it has started and that do not end by themselves within a moment."""
        return await orphans.left(self._mark, self.pid)

    async def end_rest(self) -> None:
        """Ends the processes that it has started."""
        await orphans.end(self._mark, self.pid)

    async def until_copied(self) -> None:
        """Waits for what it wrote last."""
        for output in self._outputs():
            await asyncio.to_thread(output.wait, LAST_WORDS_SECONDS)

    def printed(self) -> str:
        """The ends of its outputs that are copied."""
        return "\n".join(output.tail for output in self._outputs())

    def last_errors(self) -> str:
        """The end of its stderr."""
        return self._stderr.tail if self._stderr else ""

    def _outputs(self) -> list[Output]:
        return [output for output in (self._stderr, self._stdout) if output is not None]

    def close(self) -> None:
        """Closes what is left of it; takes the last reports."""
        self.stacks.close()
        if self._reports is not None:
            self._read_reports()
            asyncio.get_running_loop().remove_reader(self._reports)
            path = Path(self._reports.getsockname())
            self._reports.close()
            self._reports = None
            with contextlib.suppress(OSError):  # the program may have removed it, or put files beside it
                path.unlink()
                path.parent.rmdir()
