"""Takes the stacks of a child's threads: sends the signal on which faulthandler writes them (trainer/stack_dump.py)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import trainer
from trainer import host
from trainer.job import environment
from trainer.model_dir.stacks import LONGEST_NAME, Frame
from trainer.protocol.stacks import MOST_FRAMES, MOST_THREADS, State
from trainer.reporting import printable
from trainer.stack_dump import READY, SIGNAL

ANSWER_SECONDS = 2.0
"""For the first line. The handler runs at once whatever the process does, if the machine lets it."""
_QUIET_SECONDS = 0.05
"""Without a new line after which a dump is complete."""
_POLL_SECONDS = 0.01
_PIPE_BYTES = 1 << 20
"""A dump that does not fit is cut: the pipe must not stop the process that writes to it."""
_READY = re.compile(rf"^{READY} (\d+)\n", re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>[^"\n]*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_LIBRARY = re.compile(r".*/lib(?:64)?/python3(?:\.\d+)?/")
_OURS = Path(trainer.__file__).parent
_LAUNCHER = str(_OURS.with_name("trainer_launch.py"))
_STDLIB = f"{sysconfig.get_path('stdlib')}/"


class StackPipe:
    """A pipe to which the processes of one child write their stacks."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.pipe()
        for end in (self._ours, self.theirs):
            os.set_blocking(end, False)
        with contextlib.suppress(OSError, AttributeError):  # Linux only; a user's pipes may be limited
            fcntl.fcntl(self._ours, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.environ = {environment.STACKS: f"{self.theirs}:{os.fstat(self.theirs).st_ino}"}
        self._ready: dict[int, str] = {}
        """When each process started that has registered, by its id."""
        self._taking = asyncio.Lock()
        """Two questions at a time would each read a part of the text."""

    def started(self) -> None:
        """The child has its end of the pipe."""
        os.close(self.theirs)
        self.theirs = -1

    def close(self) -> None:
        for end in (self._ours, self.theirs):
            if end >= 0:
                os.close(end)
        self._ours = self.theirs = -1

    async def take(self) -> tuple[State, str]:
        """Why there are no stacks, or else faulthandler's text."""
        async with self._taking:
            return await self._take()

    async def _take(self) -> tuple[State, str]:
        self._register(self._read())
        alive = [pid for pid, started in self._ready.items() if host.started(pid) == started]
        if not alive:
            return "not asked", ""
        if all(map(host.is_stopped, alive)):
            return "stopped", ""
        text = ""
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, SIGNAL)
                text += await self._answer()
        if text:
            return "", text
        return ("in the kernel" if any(map(host.is_uninterruptible, alive)) else "no answer"), ""

    async def _answer(self) -> str:
        text, deadline = "", time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            if more := self._read():
                text, deadline = text + more, time.monotonic() + _QUIET_SECONDS
            await asyncio.sleep(_POLL_SECONDS)
        self._register(text)
        return _READY.sub("", text)

    def _read(self) -> str:
        """What is in the pipe by now."""
        found = b""
        with contextlib.suppress(OSError):
            while self._ours >= 0 and (chunk := os.read(self._ours, _PIPE_BYTES)):
                found += chunk
        return found.decode(errors="replace")

    def _register(self, text: str) -> None:
        for pid in map(int, _READY.findall(text)):
            if started := host.started(pid):
                self._ready[pid] = started


def threads(text: str, folder: Path) -> list[list[Frame]]:
    """The threads in a text of faulthandler, at most MOST_THREADS: those that run code of the user's first, and the
    main thread last, as in the text.

    Args:
        folder: that of the job's code.
    """
    blocks = [list(_frames(block, folder)) for block in _THREAD.split(text)[1:]]
    found = [frames for frames in blocks if frames]
    if len(found) > MOST_THREADS:
        *rest, main = found
        rest.sort(key=lambda frames: not any(frame.theirs for frame in frames))
        found = [*rest[: MOST_THREADS - 1], main]
    return [_shortened(frames) for frames in found]


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
