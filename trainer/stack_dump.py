"""Lets the supervisor of a task ask a process for the stacks of its threads, without ptrace and privileges.

Python's faulthandler writes them, from a thread of ours: it holds the GIL meanwhile, so no other thread changes its
stack. If a call of C keeps the GIL, as an import may, the supervisor sends a signal: faulthandler's handler needs none
(CPython, Modules/faulthandler.c). While Python code runs, that handler reads stacks which change, and has ended
processes with SIGSEGV.
This module is also for the user's own program: it imports the standard library alone, and little of that.
"""

from __future__ import annotations

import contextlib
import os
import signal

from trainer.job.environment import STACKS

SIGNAL: int = signal.SIGRTMAX - 2 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
"""One that programs and schedulers do not use, as they do SIGUSR1 and SIGUSR2. macOS has no others."""
QUESTION = b"?"
END = "end of stacks\n"
"""After the stacks, if the thread has written them."""
_registered = False


def register() -> None:
    """Starts the thread, registers the signal, and reports both to the supervisor: without a handler the signal would
    end the process. Does nothing outside of a job, and where the program handles the signal itself."""
    global _registered
    descriptor, _, inode = os.environ.get(STACKS, "").partition(":")
    if not inode or _registered:
        return
    try:
        supervisor = int(descriptor)
        # A process that the program started may have another file of that number.
        if os.fstat(supervisor).st_ino != int(inode) or signal.getsignal(SIGNAL) is not signal.SIG_DFL:
            return
        _register(supervisor)
        _registered = True
    except (OSError, ValueError, RuntimeError):
        return


def _register(supervisor: int) -> None:
    import faulthandler
    import socket
    import threading

    questions, ask = os.pipe()
    answers, answer = os.pipe()
    os.set_blocking(answer, False)  # stacks that do not fit are cut: they must not stop the process
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=os.dup(supervisor)) as connection:
            faulthandler.register(SIGNAL, file=answer, all_threads=True)
            socket.send_fds(connection, [str(os.getpid()).encode()], [ask, answers])
        threading.Thread(target=_answer, args=(questions, answer), name="stacks", daemon=True).start()
    finally:
        os.close(ask)
        os.close(answers)


def _answer(questions: int, answer: int) -> None:
    import faulthandler

    while os.read(questions, 1):
        faulthandler.dump_traceback(answer)
        with contextlib.suppress(BlockingIOError):
            os.write(answer, END.encode())


def is_own(file: str, function: str) -> bool:
    """Whether a stack with this innermost frame is that of the thread that writes them."""
    return file.endswith("trainer/stack_dump.py") and function == _answer.__name__
