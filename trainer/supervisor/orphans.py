"""Ends the processes that a workload started, when its child ends: they would keep its memory, and a fork keeps
TensorFlow's port, which the next child needs.

Most are in the child's process group. Others are found by a mark in the environment, which every process inherits and
which proc(5) shows: pid namespace, supervisor's process id and start time, number of the child.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable

from trainer import host
from trainer.job import environment

GONE_SECONDS = 2.0
"""Maximum seconds for processes to end after SIGKILL."""
_POLL_SECONDS = 0.02


def mark(number: int) -> str:
    """The mark for the environment of this supervisor's child of that number."""
    return f"{host.pid_namespace()}:{os.getpid()}:{host.started(os.getpid())}:{number}"


async def end(marked: str, group: int) -> None:
    """Ends all processes with this mark or in this process group."""
    await _end(lambda each: each.mark == marked or each.group == group)


async def end_left_over() -> None:
    """Ends all processes marked by a supervisor that has ended, for example by SIGKILL."""
    await _end(lambda each: _supervisor_is_gone(each.mark))


async def until_gone(group: int, deadline: float) -> None:
    """Waits for the processes of a group to end, at most until that time on the monotonic clock."""
    while time.monotonic() < deadline and any(each.group == group for each in host.processes(environment.CHILD)):
        await asyncio.sleep(_POLL_SECONDS)


def kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


async def _end(chosen: Callable[[host.Process], bool]) -> None:
    """Sends SIGKILL to all chosen processes until none is left, or for GONE_SECONDS.

    A dying process releases its memory first, and the mark with it, and its ports last: they are free once it is a
    zombie.
    """
    deadline, dying = time.monotonic() + GONE_SECONDS, set[tuple[int, str]]()
    while time.monotonic() < deadline:
        for each in filter(chosen, host.processes(environment.CHILD)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each.pid, signal.SIGKILL)
                dying.add((each.pid, each.started))
        dying = {(pid, started) for pid, started in dying if host.started(pid) == started}
        if not dying:
            return
        await asyncio.sleep(_POLL_SECONDS)


def _supervisor_is_gone(found: str) -> bool:
    """Whether the supervisor that made this mark has ended; False for a mark that is not of this pid namespace."""
    namespace, _, rest = found.partition(":")
    pid, _, rest = rest.partition(":")
    # Processes of containers are visible on their host, with process ids of their own namespace in the mark.
    return namespace == host.pid_namespace() and pid.isdecimal() and host.started(int(pid)) != rest.rpartition(":")[0]
