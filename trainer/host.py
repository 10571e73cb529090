"""What this machine, container or kernel tells: versions, CPUs, signals."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import platform
import signal
import time
from pathlib import Path

from trainer import __version__
from trainer.job import environment
from trainer.job.errors import UserError
from trainer.job.tf_config import Task

_PR_SET_PDEATHSIG = 1
_CGROUP = Path("/sys/fs/cgroup")


def versions() -> dict[str, str]:
    """Installed versions that all tasks must share, read without importing anything."""
    return {
        "tensorflow": _version("tensorflow", "tensorflow-cpu", "tensorflow-cpu-aws"),
        "keras": _version("keras"),
        "trainer": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def cpus(limit: float | None) -> int:
    """Cores this task may use: the spec's limit, what the launcher shared out, the cgroup's quota, or affinity.

    TensorFlow sees only the affinity, and starts a thread per core of the machine in a container of one CPU.
    """
    if limit is not None:
        return max(1, round(limit))
    available = int(os.environ.get(environment.CPUS) or len(os.sched_getaffinity(0)))
    quota = _cgroup_quota()
    return max(1, min(available, round(quota)) if quota else available)


def die_with_parent(number: signal.Signals) -> None:
    """Has the kernel send this process a signal when its parent dies (prctl(2), Linux), if the parent asked for it."""
    parent = os.environ.get(environment.PARENT)
    if parent is None:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != int(parent):
        os.kill(os.getpid(), number)


def process_age() -> float:
    """Seconds since this process was started (proc(5): starttime is field 22, in ticks)."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    up = float(Path("/proc/uptime").read_text().split()[0])
    return up - ticks / os.sysconf("SC_CLK_TCK")


def uptime() -> float:
    """Seconds since the machine's start. No change of the wall clock touches it, and containers share it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Tells the clock of `uptime` from that of another machine or boot (proc(5)); empty where it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _version(*names: str) -> str:
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "absent"


def oom_kills() -> int:
    """How many processes of this cgroup the kernel has killed for want of memory; 0 where it does not tell."""
    for path in ("memory.events", "memory/memory.oom_control"):
        with contextlib.suppress(OSError):
            counts = dict(line.split() for line in (_CGROUP / path).read_text().splitlines())
            return int(counts.get("oom_kill", 0))
    return 0


def memory_limit() -> int | None:
    """Bytes that this cgroup may use, version 2 or 1; None if there is no limit."""
    for path in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limit = int((_CGROUP / path).read_text())
            return limit if limit < 2**60 else None  # version 1 writes a page below 2**63
    return None


def port_holder(port: int) -> str | None:
    """`process 123 (python)`, which listens on this TCP port; None if it is not visible (proc(5))."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
            sockets |= {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                if descriptor.readlink().name in sockets:
                    return f"process {process.name} ({(process / 'comm').read_text().strip()})"
    return None


def port_in_use(task: Task, why: str | None = None) -> UserError:
    """With the process that holds this task's TensorFlow port, where it can be seen."""
    assert task.address is not None
    port = task.address[1]
    holder = port_holder(port)
    return UserError(
        f"port {port} (TensorFlow port of {task.name}) cannot be used: {why or 'Address already in use'}; "
        f"stop {holder or 'what holds it'}, or change this task's port in TF_CONFIG"
    )


def _cgroup_quota() -> float | None:
    """CPUs of the cgroup's CFS quota, version 2 or 1; None if there is none."""
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            base = _CGROUP / "cpu"
            quota, period = (base / "cpu.cfs_quota_us").read_text(), (base / "cpu.cfs_period_us").read_text()
        except OSError:
            return None
    if quota.strip() == "max" or int(quota) <= 0:
        return None
    return int(quota) / int(period)
