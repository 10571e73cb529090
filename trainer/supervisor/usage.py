"""Processor time and memory of a task: of its container (cgroup, version 2 or 1), or of its processes. Linux only."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from trainer import host
from trainer.job import environment

_CGROUP, _PROC = Path("/sys/fs/cgroup"), Path("/proc")


class Usage(NamedTuple):
    cpu_seconds: float
    memory: int
    """Bytes."""
    memory_limit: int | None


def read() -> Usage | None:
    """None where it is not known. Tasks of `trainer local` share a container, or have none."""
    if not host.LINUX:
        return None
    own = None if environment.PARENT in os.environ else _of_container(_CGROUP)
    return own or _of_processes(_PROC, os.getpid())


def _of_container(folder: Path) -> Usage | None:
    """None if this is the machine's root cgroup, which is of all that runs there."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        if (folder / "cgroup.controllers").exists():  # version 2
            cpu = _fields(folder / "cpu.stat")["usage_usec"] / 1e6
            used = _number(folder / "memory.current")  # the root has none
            return Usage(cpu, used - _fields(folder / "memory.stat")["inactive_file"], host.memory_limit())
        if not (folder / "memory/release_agent").exists():  # only the root has it
            cpu = _number(folder / "cpuacct/cpuacct.usage") / 1e9
            used = _number(folder / "memory/memory.usage_in_bytes")
            cache = _fields(folder / "memory/memory.stat")["total_inactive_file"]
            return Usage(cpu, used - cache, host.memory_limit())
    return None


def _of_processes(proc: Path, root: int) -> Usage | None:
    """Of a process and all that descend from it, with the time of those that have ended."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    stats = {int(each.name): fields for each in proc.glob("[0-9]*") if (fields := _stat(each))}
    if root not in stats:
        return None
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[1]), []).append(pid)
    own = [root]
    for pid in own:
        own += children.get(pid, [])
    # proc(5): utime, stime, and those of the children that were waited for; rss.
    spent = sum(int(each) for pid in own for each in stats[pid][11:15])
    return Usage(spent / ticks, page * sum(int(stats[pid][21]) for pid in own), None)


def _stat(folder: Path) -> list[str]:
    """Fields of proc(5) from the third on; empty if the process has ended."""
    with contextlib.suppress(OSError):
        return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def _number(file: Path) -> int:
    return int(file.read_text())


def _fields(file: Path) -> dict[str, int]:
    return {name: int(value) for name, value in map(str.split, file.read_text().splitlines())}
