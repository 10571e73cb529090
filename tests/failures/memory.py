"""Makes the kernel kill a process at the memory limit of its cgroup: `python memory.py PID`.

As a program it fills the memory of the cgroup that it runs in, without holding any of it as its own, so that the kernel
finds another process to kill; it ends when one was killed. It runs in containers too, so it imports nothing of ours.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 64 << 20
SECONDS = 60
FIRST = "1000"
"""In oom_score_adj: the kernel kills this process, however large others are (proc_pid_oom_score_adj(5))."""
ROOTS = {Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes", Path("/sys/fs/cgroup"): "memory.max"}
"""Of cgroup version 1 and 2: where cgroups are made, and the file of the limit."""


def fill(pid: int) -> str:
    """Takes memory that belongs to no process until there is no process `pid` any more. Returns an error, or ""."""
    deadline, file = time.monotonic() + SECONDS, os.memfd_create("fill")
    with contextlib.suppress(OSError):  # it has ended by itself
        Path(f"/proc/{pid}/oom_score_adj").write_text(FIRST)
    while not _dies(pid) and time.monotonic() < deadline:
        # Waits in the kernel at the limit, until it has killed somebody.
        with contextlib.suppress(OSError):
            os.write(file, bytes(1 << 18))
    # Its memory comes free meanwhile: to fill that too would end the next process.
    return "" if _ends(pid, deadline) else f"process {pid} was not killed"


def starve(pid: int) -> None:
    """Moves a process into a cgroup with a limit, and fills that. Needs root; returns once the process was killed.

    What a process already has is not counted in its new cgroup.
    """
    root, limit = next((root, file) for root, file in ROOTS.items() if any(root.glob("memory.*")))
    group = root / f"trainer-failures-{pid}"
    group.mkdir()
    try:
        (group / limit).write_text(str(LIMIT))
        (group / "cgroup.procs").write_text(str(pid))
        own = f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
        program = f"{own}; import runpy; runpy.run_path({__file__!r}, run_name='__main__')"
        # The process that is killed leaves no room here, where its memory is not counted: the program may be the next,
        # and that at once.
        subprocess.run([sys.executable, "-c", program, str(pid)])
        assert _ends(pid, time.monotonic() + SECONDS), f"process {pid} was not killed"
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while group.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # its processes are still on their way out
            group.rmdir()
        time.sleep(0.01)


def _dies(pid: int) -> bool:
    """Whether SIGKILL is on its way to a process, or it has begun to exit (PF_EXITING in proc_pid_stat(5))."""
    try:
        status, stat = (Path(f"/proc/{pid}/{name}").read_text() for name in ("status", "stat"))
    except OSError:
        return True
    pending = re.findall(r"^(?:Sig|Shd)Pnd:\t(\w+)", status, re.MULTILINE)
    exiting = int(stat.rpartition(")")[2].split()[6]) & 0x4
    return bool(exiting) or any(int(each, 16) >> signal.SIGKILL - 1 & 1 for each in pending)


def _ends(pid: int, deadline: float) -> bool:
    """Waits until a process has ended, if it does until then."""
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(fill(int(sys.argv[1])) or 0)
