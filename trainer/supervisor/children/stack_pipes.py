"""Takes the stacks of a child's threads, which its processes write themselves (trainer/stack_dump.py)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import socket
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trainer
from trainer import clocks, host
from trainer.job import environment
from trainer.model_dir.stacks import LONGEST_NAME, Frame
from trainer.protocol.stacks import MOST_FRAMES, MOST_THREADS, State
from trainer.reporting import printable
from trainer.stack_dump import END, QUESTION, SIGNAL, is_own

THREAD_SECONDS = 1.5
"""How long a process's thread may take to answer; it has to wait for the GIL."""
SIGNAL_SECONDS = 1.0
"""How long the first line after a signal may take. The handler runs at once whatever the process does, if the machine
lets it."""
_QUIET_SECONDS = 0.05
"""How long no new line may come until the answer to a signal is complete."""
_ANSWER_POLL_SECONDS = 0.01
_PIPE_BYTES = 1 << 20
"""The size of a pipe; stacks that do not fit are cut."""
_PID_BYTES = 20
_MOST_PROCESSES = 64
"""How many processes of one child are asked at a time; further ones are not."""
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>[^"\n]*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_LIBRARY = re.compile(r".*/lib(?:64)?/python3(?:\.\d+)?/")
_OURS = Path(trainer.__file__).parent
_LAUNCHER = str(_OURS.with_name("trainer_launch.py"))
_STDLIB = f"{sysconfig.get_path('stdlib')}/"


@dataclass
class _Process:
    """One that has registered, with the pipes that it has made."""

    pid: int
    started: str
    ask: int
    answers: int

    @property
    def alive(self) -> bool:
        return host.started(self.pid) == self.started

    def read(self) -> str:
        """What is in its pipe by now."""
        body = b""
        with contextlib.suppress(OSError):
            while chunk := os.read(self.answers, _PIPE_BYTES):
                body += chunk
        return body.decode(errors="replace")

    def close(self) -> None:
        """Closes both pipes, also while an answer is read."""
        os.close(self.ask)
        os.close(self.answers)
        self.ask = self.answers = -1


class StackPipes:
    """Pipes to the processes of one child that have registered, as stack_dump.py does."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._ours, self._theirs = ours, theirs
        for end in (ours, theirs):
            end.setblocking(False)
        self.theirs = theirs.fileno()
        self.environ = {environment.STACKS: f"{self.theirs}:{os.fstat(self.theirs).st_ino}"}
        self._processes: list[_Process] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop, once the child was started."""
        self._taking = asyncio.Lock()
        """Held while stacks are read: two questions at a time would each read a part of the text."""

    def started(self) -> None:
        """The child has its end."""
        self._theirs.close()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ours.fileno(), self._register)

    def close(self) -> None:
        self._listen_no_more()
        self._ours.close()
        self._theirs.close()
        for process in self._processes:
            process.close()
        self._processes = []

    async def take(self) -> tuple[State, str]:
        """Why there are no stacks, or else faulthandler's text."""
        async with self._taking:
            return await self._take()

    async def _take(self) -> tuple[State, str]:
        self._register()
        alive = [process for process in self._processes if process.alive]
        if not alive:
            return "not asked", ""
        pids = [process.pid for process in alive]
        if all(map(host.is_stopped, pids)):
            return "stopped", ""
        text = "".join([await _stacks_of(process) for process in alive])
        if text:
            return "", text
        return ("in the kernel" if any(map(host.is_uninterruptible, pids)) else "no answer"), ""

    def _listen_no_more(self) -> None:
        if self._loop and self._ours.fileno() >= 0:
            self._loop.remove_reader(self._ours.fileno())

    def _register(self) -> None:
        """Takes the pipes of the processes that have registered since."""
        if self._ours.fileno() < 0:
            return
        while True:
            try:
                text, pipes, _, _ = socket.recv_fds(self._ours, _PID_BYTES, 2)
            except OSError:
                return
            if not text:  # all their ends are closed
                self._listen_no_more()
                return
            self._add(text, pipes)

    def _add(self, text: bytes, pipes: list[int]) -> None:
        for ended in [process for process in self._processes if not process.alive]:
            self._processes.remove(ended)
            ended.close()
        pid = int(text) if text.isdigit() else 0
        started = host.started(pid) if pid else ""
        if not started or len(pipes) != 2 or len(self._processes) == _MOST_PROCESSES:
            for pipe in pipes:
                os.close(pipe)
            return
        for pipe in pipes:
            os.set_inheritable(pipe, False)
            os.set_blocking(pipe, False)
        with contextlib.suppress(OSError, AttributeError):  # Linux only; a user's pipes may be limited
            fcntl.fcntl(pipes[1], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._processes.append(_Process(pid, started, *pipes))


async def _stacks_of(process: _Process) -> str:
    process.read()  # an answer that came too late
    with contextlib.suppress(OSError):
        os.write(process.ask, QUESTION)
    if text := await _answer(process, THREAD_SECONDS):
        return text
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, SIGNAL)
        return await _answer(process, SIGNAL_SECONDS)
    return ""


async def _answer(process: _Process, seconds: float) -> str:
    text, deadline = "", clocks.monotonic() + seconds
    while clocks.monotonic() < deadline:
        if more := process.read():
            text, deadline = text + more, clocks.monotonic() + _QUIET_SECONDS
        text, end, _ = text.partition(END)
        if end:
            break
        await asyncio.sleep(_ANSWER_POLL_SECONDS)
    return text


def threads(text: str, folder: Path) -> list[list[Frame]]:
    """The stacks in faulthandler's text, at most MOST_THREADS, without that of the thread that wrote them. Threads that
    run the user's code are kept first, and the main thread is the last, as in the text.

    Args:
        folder: that of the job's code.
    """
    blocks = [list(_frames(block, folder)) for block in _THREAD.split(text)[1:]]
    stacks = [frames for frames in blocks if frames and not is_own(frames[0].file, frames[0].function)]
    if len(stacks) > MOST_THREADS:
        *rest, main = stacks
        rest.sort(key=lambda frames: not any(frame.theirs for frame in frames))
        stacks = [*rest[: MOST_THREADS - 1], main]
    return [_shortened(frames) for frames in stacks]


def _shortened(frames: list[Frame]) -> list[Frame]:
    """The innermost calls and the outermost ones: between them there may be a deep recursion."""
    half = MOST_FRAMES // 2
    return frames if len(frames) <= MOST_FRAMES else [*frames[:half], *frames[-half:]]


def _frames(block: str, folder: Path) -> Iterator[Frame]:
    for frame in _FRAME.finditer(block):
        name, theirs = _name(frame["file"], folder)
        function = printable(frame["function"])[:LONGEST_NAME]
        yield Frame(printable(name)[-LONGEST_NAME:], min(int(frame["line"]), 2**31 - 1), function, theirs)


def _name(file: str, folder: Path) -> tuple[str, bool]:
    """A file's name for the reader, and whether it is of the user's code."""
    if file == _LAUNCHER or file.startswith(f"{_OURS}/"):
        return str(Path(file).relative_to(_OURS.parent)), False
    if match := _PACKAGES.match(file) or _LIBRARY.match(file):
        return file[match.end() :], False
    if file.startswith(("<", _STDLIB)):
        return file.removeprefix(_STDLIB), False
    path = Path(file)
    return (str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name), True
