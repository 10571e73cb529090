"""Ends the processes that a workload started, when the child that ran it ends: they would keep its memory, and a fork
keeps TensorFlow's port, which the next child needs.

Most are in the child's process group. Those that left it are found by a mark in the environment, which every process
inherits and which proc(5) shows: pid namespace, supervisor's process id and start time, number of the child.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

VARIABLE = "TRAINER_CHILD"


def mark(number: int) -> str:
    """For the environment of this supervisor's child of that number."""
    return f"{_namespace()}:{os.getpid()}:{_started(os.getpid())}:{number}"


def kill(marked: str) -> int:
    """Sends SIGKILL to all processes with this mark; returns how many there were."""
    return _kill(lambda found: found == marked)


def kill_left_over() -> int:
    """Sends SIGKILL to all processes that were marked by a supervisor that is gone, killed itself perhaps."""
    return _kill(_supervisor_is_gone)


def kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _kill(chosen: Callable[[str], bool]) -> int:
    count = 0
    for pid, found in _marked():
        if chosen(found):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                count += 1
    return count


def _supervisor_is_gone(found: str) -> bool:
    namespace, _, rest = found.partition(":")
    pid, _, rest = rest.partition(":")
    # Processes of containers are visible on their host, with process ids of their own namespace in the mark.
    return namespace == _namespace() and pid.isdigit() and _started(int(pid)) != rest.partition(":")[0]


def _marked() -> Iterator[tuple[int, str]]:
    """Process id and mark of every process that has one, as far as they are visible."""
    prefix = f"{VARIABLE}=".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for variable in (folder / "environ").read_bytes().split(b"\0"):
                if variable.startswith(prefix):
                    yield int(folder.name), variable.removeprefix(prefix).decode(errors="replace")


def _started(pid: int) -> str:
    """When a process was started, in ticks since the boot; empty if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _namespace() -> str:
    return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
