"""Reserves ports for a local cluster, which other `trainer local` runs avoid while this one lasts."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Sequence

from trainer.job.errors import UserError
from trainer.job.names import CONTROL_PORT_OFFSET, MAX_TF_PORT, control_port

# TensorFlow ports come in blocks of 100. Ten blocks fill 1000 ports, the next 1000 are their control ports, and so
# on: 10000-10999, 12000-12999, ... All lie below 32768, where Linux begins to give ports to outgoing connections.
FIRST_PORT, BLOCK, BLOCKS = 10_000, 100, 100
MAX_TASKS = BLOCK - 1


@contextlib.contextmanager
def reserve(tasks: Sequence[str], base: int | None = None) -> Iterator[dict[str, int]]:
    """Reserves a TensorFlow port for every task; its control port, CONTROL_PORT_OFFSET above, is free too.

    Args:
        tasks: names, in the order in which they get ports.
        base: the first of these ports; default: the first free block.

    Raises:
        UserError: a port is in use or out of range, or there are too many tasks.
    """
    require_room(len(tasks))
    if base is not None:
        yield _exactly(tasks, base)
        return
    for first in blocks(os.getpid()):
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(_guard(first))
            except OSError:
                continue  # another run has this block
            if any(problem(port) for port in _used(first, len(tasks))):
                continue
            yield {task: first + index for index, task in enumerate(tasks)}
            return
    raise UserError(f"no {len(tasks)} free ports in any block from {FIRST_PORT} on; end what holds them, or use --port")


def require_room(tasks: int) -> None:
    """
    Raises:
        UserError: there are too many tasks.
    """
    if tasks > MAX_TASKS:
        raise UserError(
            f"{tasks} tasks: one machine runs at most {MAX_TASKS}; lower tasks.*.replicas, "
            "for example --set tasks.worker.replicas=4"
        )


def blocks(start: int) -> Iterator[int]:
    """The first port of each block, starting at a numbered block; different numbers make collisions of runs rare."""
    for number in range(start, start + BLOCKS):
        thousand, block = divmod(number % BLOCKS, CONTROL_PORT_OFFSET // BLOCK)
        yield FIRST_PORT + 2 * CONTROL_PORT_OFFSET * thousand + BLOCK * block


def problem(port: int) -> str | None:
    """Why a port cannot be listened on; None if it is free."""
    for host in ("127.0.0.1", ""):
        with socket.socket() as probe:
            # Like the tasks: a connection that has just ended (TIME_WAIT) does not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                return "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
    return None


def _guard(first: int) -> socket.socket:
    """Listens on the last port of a block, without SO_REUSEADDR, so that only one run can reserve it."""
    guard = socket.socket()
    try:
        guard.bind(("127.0.0.1", first + BLOCK - 1))
        guard.listen(1)
    except OSError:
        guard.close()
        raise
    return guard


def _used(first: int, count: int) -> Iterator[int]:
    for port in range(first, first + count):
        yield from (port, control_port(port))


def _exactly(tasks: Sequence[str], base: int) -> dict[str, int]:
    highest = MAX_TF_PORT - len(tasks) + 1
    if not 1 <= base <= highest:
        raise UserError(f"--port {base}: must be 1..{highest}: {len(tasks)} tasks, with control ports 1000 above")
    taken = {task: base + index for index, task in enumerate(tasks)}
    owners = {port: f"{what}{task}" for task, tf_port in taken.items()
              for port, what in ((tf_port, ""), (control_port(tf_port), "control port of "))}  # fmt: skip
    problems = [
        f"port {port} ({owner}) {why}; choose another --port or leave it out"
        for port, owner in owners.items()
        if (why := problem(port))
    ]
    if problems:
        raise UserError(*problems)
    return taken
