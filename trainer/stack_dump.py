"""Lets the supervisor of a task ask a process for the stacks of its threads, without ptrace and privileges.

Python's faulthandler writes them from a signal handler in C, which needs no GIL (CPython, Modules/faulthandler.c).
This module is also for the user's own program: it imports the standard library alone, and little of that.
"""

from __future__ import annotations

import os
import signal

from trainer.job.environment import STACKS

SIGNAL: int = signal.SIGRTMAX - 2 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
"""One that programs and schedulers do not use, as they do SIGUSR1 and SIGUSR2. macOS has no others."""
READY = "ready"


def register() -> None:
    """Registers the handler, and reports to the supervisor that the signal may be sent: without a handler it would end
    the process. Does nothing outside of a job, and where the program handles the signal itself."""
    descriptor, _, inode = os.environ.get(STACKS, "").partition(":")
    if not inode:
        return
    try:
        pipe = int(descriptor)
        # A process that the program started may have another file of that number.
        if os.fstat(pipe).st_ino != int(inode) or signal.getsignal(SIGNAL) is not signal.SIG_DFL:
            return
        import faulthandler

        faulthandler.register(SIGNAL, file=pipe, all_threads=True)
        os.write(pipe, f"{READY} {os.getpid()}\n".encode())
    except (OSError, ValueError, RuntimeError):
        return
