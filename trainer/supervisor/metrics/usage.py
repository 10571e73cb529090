"""Processor time, memory and network of a task: of its container (cgroup, version 2 or 1), or of its processes. Linux
only. The supervisor keeps one reading, for its reports and for /metrics."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainer import clocks, host
from trainer.job import environment
from trainer.protocol.reports import Used
from trainer.supervisor.metrics.gpus import Gpu, Gpus

if TYPE_CHECKING:
    from trainer.supervisor.task.agent import Agent

READ_SECONDS = 5.0
"""Time between two readings."""
_CGROUP, _PROC = Path("/sys/fs/cgroup"), Path("/proc")


class Usage(NamedTuple):
    cpu_seconds: float
    memory: int
    """Bytes."""
    memory_limit: int | None
    received: int | None = None
    sent: int | None = None
    """Bytes since the container began, by all devices but loopback. None of tasks that share a network."""


class Meter:
    """Reads what a task uses for as long as the task lasts, and keeps the last reading."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.usage: Usage | None = None
        self.gpus: list[Gpu] = []

    async def run(self) -> None:
        devices = Gpus(self._agent.spec.tasks.of(self._agent.task.type).gpus)
        self.usage, read_at = read(), clocks.monotonic()
        self.gpus = await devices.read()
        while True:
            await asyncio.sleep(READ_SECONDS)
            before, before_at = self.usage, read_at
            self.usage, read_at = read(), clocks.monotonic()
            self.gpus = await devices.read()
            self._agent.used = between(before, self.usage, read_at - before_at, self.gpus)


def between(before: Usage | None, now: Usage | None, seconds: float, gpus: list[Gpu]) -> Used:
    """What is used now, with the rates between two readings.

    Args:
        seconds: between the two.
    """
    shares = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    sizes = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    return Used(
        cpu=_rate(before and before.cpu_seconds, now and now.cpu_seconds, seconds),
        memory=now and now.memory,
        gpu=sum(shares) / len(shares) if shares else None,
        gpu_memory=sum(sizes) if sizes else None,
        received=_rate(before and before.received, now and now.received, seconds),
        sent=_rate(before and before.sent, now and now.sent, seconds),
    )


def _rate(before: float | None, now: float | None, seconds: float) -> float | None:
    """None too where a counter has begun anew."""
    if before is None or now is None or now < before:
        return None
    return (now - before) / seconds


def read() -> Usage | None:
    """None where it is not known. Tasks of `trainer local` share a container, or have none."""
    if not host.LINUX:
        return None
    if environment.PARENT in os.environ:
        return _of_processes(_PROC, os.getpid())
    usage = _of_container(_CGROUP) or _of_processes(_PROC, os.getpid())
    received, sent = _network(_PROC)
    return usage and usage._replace(received=received, sent=sent)


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
    """What a process uses, and all that descend from it, with the time of those that have ended."""
    if not (proc / f"{root}/task/{root}/children").exists():  # the kernel may lack it, as gVisor's
        return None
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    spent = pages = 0
    pids = [root]
    for pid in pids:
        if fields := _stat(proc / str(pid)):
            # proc(5): utime, stime, and those of the children that were waited for; rss.
            spent += sum(map(int, fields[11:15]))
            pages += int(fields[21])
            pids += _children(proc / str(pid))
    return Usage(spent / ticks, page * pages, None)


def _children(folder: Path) -> list[int]:
    """The processes that each thread has started (proc(5)): fewer files than all processes of a large machine have."""
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for thread in (folder / "task").iterdir():
            with contextlib.suppress(OSError):
                pids += map(int, (thread / "children").read_text().split())
    return pids


def _stat(folder: Path) -> list[str]:
    """Fields of proc(5) from the third on; empty if the process has ended."""
    with contextlib.suppress(OSError):
        return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def _network(proc: Path) -> tuple[int | None, int | None]:
    """Bytes received and sent (proc(5), net/dev)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        received = sent = 0
        for line in (proc / "self/net/dev").read_text().splitlines()[2:]:
            device, _, counts = line.partition(":")
            if device.strip() != "lo":
                fields = counts.split()
                received, sent = received + int(fields[0]), sent + int(fields[8])
        return received, sent
    return None, None


def _number(file: Path) -> int:
    return int(file.read_text())


def _fields(file: Path) -> dict[str, int]:
    return {name: int(value) for name, value in map(str.split, file.read_text().splitlines())}
