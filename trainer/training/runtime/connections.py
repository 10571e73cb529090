"""This process's own TCP sockets, connections by peer, and peers that do not listen yet."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from collections.abc import Iterable, Iterator, Set
from typing import TypeAlias

from trainer import host
from trainer.job.names import split_address

Peer: TypeAlias = "tuple[str, int]"
LISTEN_SECONDS = 20.0
"""Maximum wait for peers to listen; after it TensorFlow waits for them."""
_REDIAL_SECONDS = 0.01
"""Seconds from an attempt to connect that failed to the next one."""
_DIAL_SECONDS = 1.0
"""Maximum wait for one attempt."""


def peers(address: str) -> set[Peer]:
    """Addresses of HOST:PORT; empty if the host has none."""
    host, port = split_address(address)
    try:
        return {(_plain(str(info[4][0])), port) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError:
        return set()


def until_they_listen(addresses: Iterable[str]) -> None:
    """Waits until the peers at these addresses listen: gRPC repeats a refused connection only after a second."""
    deadline = time.monotonic() + LISTEN_SECONDS
    for address in addresses:
        while not _listens(address) and time.monotonic() < deadline:
            time.sleep(_REDIAL_SECONDS)


def _listens(address: str) -> bool:
    try:
        with socket.create_connection(split_address(address), _DIAL_SECONDS) as made:
            # The kernel may choose the same port for this end, and connect it to itself: then nobody listens.
            return bool(made.getsockname() != made.getpeername())
    except OSError:
        return False


def sockets() -> Iterator[socket.socket]:
    """Duplicates of this process's TCP sockets, which belong to TensorFlow."""
    for entry in host.DESCRIPTORS.iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if not stat.S_ISSOCK(os.fstat(int(entry.name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as each:
                if each.family in (socket.AF_INET, socket.AF_INET6) and each.type == socket.SOCK_STREAM:
                    yield each


def cut(wanted: Set[Peer]) -> int:
    """Ends all connections to these peers, as a reset would; returns their number. A stopped peer cannot reset them
    itself, and gRPC has no time limit (keepalive is off, and TensorFlow has no option for it)."""
    count = 0
    for each in sockets():
        with contextlib.suppress(OSError):
            host, port, *_ = each.getpeername()
            if (_plain(host), port) in wanted:
                each.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def _plain(host: str) -> str:
    return host.removeprefix("::ffff:")
