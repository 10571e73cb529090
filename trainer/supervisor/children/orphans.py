"""Ends the processes that a workload started, when its child ends: they would keep its memory, and a fork keeps
TensorFlow's port, which the next child needs.

Most are in the child's process group. Others are found by a mark in the environment, which every process inherits and
which proc(5) shows: pid namespace, supervisor's process id and start time, number of the child.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from trainer import clocks, host
from trainer.job import environment

GONE_SECONDS = 2.0
"""How long processes may take to end after SIGKILL."""
BY_THEMSELVES_SECONDS = 0.5
"""Time for processes to end by themselves after the program that started them, as the end of a pipe does."""
_GONE_POLL_SECONDS = 0.02
_FOLDER = "trainer-"
_SHORT = "/tmp"  # noqa: S108 (mkdtemp makes a folder that is ours)
_LONGEST_PLACE = 40
"""The longest path of the folder with the socket, in bytes: the path of a socket has at most 107 (unix(7))."""


def mark(number: int) -> str:
    """The mark for the environment of this supervisor's child of that number."""
    return f"{host.pid_namespace()}:{os.getpid()}:{host.started(os.getpid())}:{number}"


async def end(marked: str, group: int) -> None:
    """Ends all processes with this mark or in this process group."""
    await _end(lambda each: each.mark == marked or each.group == group)


async def end_left_over() -> None:
    """Ends all processes marked by a supervisor that has ended, for example by SIGKILL, and removes its folders."""
    await _end(lambda each: _supervisor_is_gone(each.mark))
    for path in {path for place in (tempfile.gettempdir(), _SHORT) for path in Path(place).glob(f"{_FOLDER}*")}:
        with contextlib.suppress(OSError):
            is_ours = path.lstat().st_uid == os.getuid()  # others may write to the folder too
            if is_ours and _supervisor_is_gone(path.name.removeprefix(_FOLDER).rpartition("-")[0]):
                shutil.rmtree(path)


def folder(marked: str) -> Path:
    """Makes a folder for a socket, which the next supervisor removes if this one is killed."""
    place = _SHORT if len(tempfile.gettempdir()) > _LONGEST_PLACE else None
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{marked}-", dir=place))


async def until_gone(group: int, deadline: float) -> None:
    """Waits for the processes of a group to end, at most until that time on the monotonic clock."""
    while clocks.monotonic() < deadline and runs(group):
        await asyncio.sleep(_GONE_POLL_SECONDS)


async def left(marked: str, group: int) -> list[str]:
    """The names of the processes with this mark or in this group that do not end by themselves within a moment."""
    deadline = clocks.monotonic() + BY_THEMSELVES_SECONDS
    while there := [each for each in host.processes(environment.CHILD) if each.mark == marked or each.group == group]:
        if clocks.monotonic() > deadline:
            return [f"{host.process_name(each.pid)} ({each.pid})" for each in there]
        await asyncio.sleep(_GONE_POLL_SECONDS)
    return []


def runs(group: int) -> bool:
    """Whether a process of a group runs."""
    return any(each.group == group for each in host.processes(environment.CHILD))


def kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


async def _end(chosen: Callable[[host.Process], bool]) -> None:
    """Sends SIGKILL to all chosen processes until none is left, or for GONE_SECONDS.

    A dying process releases its memory first, and the mark with it, and its ports last: for those preflight.py waits.
    """
    deadline, dying = clocks.monotonic() + GONE_SECONDS, set[tuple[int, str]]()
    while clocks.monotonic() < deadline:
        for each in filter(chosen, host.processes(environment.CHILD)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each.pid, signal.SIGKILL)
                dying.add((each.pid, each.started))
        dying = {(pid, started) for pid, started in dying if host.started(pid) == started}
        if not dying:
            return
        await asyncio.sleep(_GONE_POLL_SECONDS)


def _supervisor_is_gone(mark: str) -> bool:
    """Whether the supervisor that made this mark has ended; False for a mark that is not of this pid namespace."""
    namespace, _, rest = mark.partition(":")
    pid, _, rest = rest.partition(":")
    # Processes of containers are visible on their host, with process ids of their own namespace in the mark.
    return namespace == host.pid_namespace() and pid.isdecimal() and host.started(int(pid)) != rest.rpartition(":")[0]
