"""Facts about the machine, container and kernel: versions, CPUs, clocks, processes, descriptors.

This module and sockets.py hold all uses of features that only Linux has (affinity, cgroups, prctl, /proc). On macOS:
- CPUs: all of them; no quota, no memory limit, no count of processes killed for lack of memory.
- The death of a parent is noticed within PARENT_SECONDS.
- The age of a process counts from its first imports.
- Processes are found by ps(1), without their environment: one in a session of its own is not found.
- The boot is not identified.
- A listener cannot be restricted to loopback (trainer/training/runtime/loopback.py): a warning names the port.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import platform
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import trainer
from trainer import __version__
from trainer.job import environment

LINUX = sys.platform == "linux"
DESCRIPTORS = Path("/proc/self/fd" if LINUX else "/dev/fd")
"""A folder with an entry for each open descriptor of this process."""
PARENT_SECONDS = 0.5
_IMPORTED = time.monotonic()
_PR_SET_PDEATHSIG = 1
_LOWEST = 19
_core_limit: tuple[int, int] | None = None
_CGROUP = Path("/sys/fs/cgroup")


PACKAGES = {
    "tensorflow": (
        "tensorflow", "tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow-gpu", "tensorflow-intel", "tensorflow-macos",
        "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu",
    ),
    "keras": ("keras", "keras-nightly"),
}  # fmt: skip
"""Packages whose versions all tasks must share, and the names of distributions that hold each."""


def command(module: str, *words: str) -> tuple[str, ...]:
    """The command that calls `main()` of a module of this trainer with these words; isolated if this process is."""
    isolated = ("-I", "-S") if sys.flags.no_site else ()  # images/trainer
    return (sys.executable, *isolated, str(Path(trainer.__file__).parents[1] / "trainer_launch.py"), module, *words)


def versions() -> dict[str, str]:
    """Installed versions that all tasks must share, read without importing the packages."""
    return {
        **{package: _version(*names) for package, names in PACKAGES.items()},
        "trainer": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def cpus(limit: float | None) -> int:
    """Cores that this task may use: the spec's limit, the launcher's share, the cgroup's quota, or the affinity.

    TensorFlow reads only the affinity: in a container with one CPU it would start a thread per core of the machine.
    """
    if limit is not None:
        return max(1, round(limit))
    available = int(os.environ.get(environment.CPUS) or available_cpus())
    quota = _cgroup_quota()
    return max(1, min(available, round(quota)) if quota else available)


def available_cpus() -> int:
    """CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if LINUX else os.cpu_count() or 1


def die_with_parent(number: signal.Signals) -> None:
    """Lets the kernel send this process a signal when its parent dies (prctl(2)), if the parent asked for it."""
    parent = os.environ.get(environment.PARENT)
    if parent is None:
        return
    if not LINUX:
        threading.Thread(target=_die_after, args=(int(parent), number), daemon=True).start()
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != int(parent):
        os.kill(os.getpid(), number)


def end_with_parent(number: signal.Signals) -> None:
    """Sends this process a signal when its parent has ended, if the parent asked for it; unlike the kernel, which does
    so when the parent's thread ends that has started this process."""
    if parent := os.environ.get(environment.PARENT):
        threading.Thread(target=_die_after, args=(int(parent), number), daemon=True).start()


def _die_after(parent: int, number: signal.Signals) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), number)


def at_lowest_priority(function: Callable[[], None]) -> None:
    """Calls a function in a thread that has the CPU only while hardly any other wants it.

    Threads that the function starts keep that priority until they end: nothing but root may raise it (setpriority(2)).
    """
    failures: list[BaseException] = []

    def run() -> None:
        if LINUX:  # elsewhere it is that of the whole process
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
        try:
            function()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def process_age() -> float:
    """Seconds since this process was started (proc(5): starttime is field 22, in ticks), or since this was imported."""
    if not LINUX:
        return time.monotonic() - _IMPORTED
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    up = float(Path("/proc/uptime").read_text().split()[0])
    return up - ticks / os.sysconf("SC_CLK_TCK")


def uptime() -> float:
    """Seconds since the machine's start: independent of the wall clock, and the same in all containers."""
    # macOS' monotonic clock includes the time that the machine sleeps, as Linux' boot time does.
    return time.clock_gettime(time.CLOCK_BOOTTIME if LINUX else time.CLOCK_MONOTONIC)


def boot_id() -> str:
    """Identifies the boot that `uptime` counts from (proc(5)); empty where it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Process(NamedTuple):
    pid: int
    started: str
    """The start time, in the system's own unit."""
    group: int
    mark: str
    """The value of the environment variable that was asked for; empty where it cannot be read."""


def processes(variable: str) -> Iterator[Process]:
    """All visible processes except zombies, with the value of an environment variable."""
    if not LINUX:
        for pid, group, state, *started in _ps("-ax", "pid=,pgid=,stat=,lstart="):
            if not state.startswith("Z"):
                yield Process(int(pid), "-".join(started), int(group), "")
        return
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))):
            yield Process(int(folder.name), fields[19], int(fields[2]), _variable(folder, variable))


def owners(proc: str = "/proc") -> Iterator[tuple[int, int, str]]:
    """User, process id and control groups of each visible process; none where that is not known."""
    for folder in Path(proc).iterdir() if LINUX else ():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                yield folder.stat().st_uid, int(folder.name), (folder / "cgroup").read_text()


def started(pid: int) -> str:
    """Start time of a process, as in Process; empty if it has ended or is a zombie."""
    if not LINUX:
        return "".join("-".join(words) for state, *words in _ps(f"-p{pid}", "stat=,lstart=") if state[0] != "Z")
    fields = _stat(pid)
    return fields[19] if fields else ""


def parent(pid: int) -> int:
    """Process id of a process's parent; 0 if the process has ended, or is not visible (proc(5))."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process."""
    return _state(pid) == "T"


def is_uninterruptible(pid: int) -> bool:
    """Whether the process is in a call of the kernel that no signal interrupts."""
    return _state(pid) == ("D" if LINUX else "U")


def _state(pid: int) -> str:
    """The letter of ps(1); empty if the process has ended or is a zombie."""
    if not LINUX:
        return next((state[:1] for (state,) in _ps(f"-p{pid}", "stat=")), "")
    return "".join(_stat(pid)[:1])


def waits_for_cpu(pid: int) -> dict[str, float]:
    """Seconds for which each thread of a process was ready to run while others had the CPU (sched-stats(5) of Linux,
    also of a container at its limit); empty where the kernel does not say."""
    waits = {}
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                waits[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return waits


def pid_namespace() -> str:
    """Identifier of this process's pid namespace; empty where there are none."""
    return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]") if LINUX else ""


def process_name(pid: int) -> str:
    """The name of a process's program."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"


def _stat(pid: int) -> list[str]:
    """Fields of proc(5) from the third on: state, parent, group, ...; empty if the process has ended or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] in "ZX" else fields


def _variable(folder: Path, name: str) -> str:
    prefix = f"{name}=".encode()
    with contextlib.suppress(OSError):
        for variable in (folder / "environ").read_bytes().split(b"\0"):
            if variable.startswith(prefix):
                return variable.removeprefix(prefix).decode(errors="replace")
    return ""


def _ps(which: str, columns: str) -> list[list[str]]:
    command = ["ps", which, "-o", columns]
    return [line.split() for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines()]


def _version(*names: str) -> str:
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "absent"


def oom_kills() -> int:
    """Number of processes in this cgroup that the kernel has killed for lack of memory; 0 where it is not known."""
    for path in ("memory.events", "memory/memory.oom_control"):
        with contextlib.suppress(OSError):
            counts = dict(line.split() for line in (_CGROUP / path).read_text().splitlines())
            return int(counts.get("oom_kill", 0))
    return 0


def memory_limit() -> int | None:
    """Memory limit of this cgroup (version 2 or 1) in bytes; None if there is none."""
    for path in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limit = int((_CGROUP / path).read_text())
            return limit if limit < 2**60 else None  # version 1 writes a page below 2**63
    return None


def free_memory() -> int | None:
    """Bytes that this container, or a machine without a limit, can still give; None where it is not known."""
    limit = memory_limit()
    if limit is None:
        return _field("/proc/meminfo", "MemAvailable:", 1024)
    for used, statistics in (("memory.current", "memory.stat"), ("memory/memory.usage_in_bytes", "memory/memory.stat")):
        with contextlib.suppress(OSError, ValueError):
            # Pages of files that nothing reads are given away first.
            reclaimable = _field(_CGROUP / statistics, "inactive_file") or 0
            return limit - int((_CGROUP / used).read_text()) + reclaimable
    return None


def _field(path: str | Path, name: str, unit: int = 1) -> int | None:
    """The number behind a name in a file of lines such as `MemAvailable: 1024 kB`; None if there is none."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1]) * unit
    return None


def be_killed_first() -> None:
    """Makes the kernel prefer this process if memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def address_space() -> int:
    """Bytes of addresses that this process has; 0 where it is not known. macOS does not keep a limit of them."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if LINUX else 0


def wipe_variable(name: str) -> None:
    """Overwrites the value of an environment variable where /proc shows what a process began with, to all processes of
    its user. Python's os.environ is a copy of that."""
    with contextlib.suppress(OSError, ValueError, IndexError):  # as on macOS
        begun = Path("/proc/self/environ").read_bytes()
        place = (b"\0" + begun).find(f"\0{name}=".encode())
        if place >= 0:
            length = len(begun[place:].partition(b"\0")[0]) - len(name) - 1
            start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[47])  # env_start, proc(5)
            ctypes.memset(start + place + len(name) + 1, ord("*"), length)


def dump_no_memory() -> None:
    """Lets the kernel write no core file of this process, whose memory has a secret."""
    global _core_limit
    _core_limit = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, _core_limit[1]))


def may_dump(pid: int) -> None:
    """Gives a child, which inherits the limit, the one that this process had before `dump_no_memory`."""
    if LINUX and _core_limit is not None:
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_CORE, _core_limit)


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
