"""Closes a TensorFlow server to other machines if its cluster is on loopback.

The server listens on all interfaces, whatever host TF_CONFIG names (grpc_server_lib.cc), and executes any graph that it
receives, which can read and write files as its user. TensorFlow has no option to prevent that. Therefore its listening
socket is restricted to the loopback device as soon as it exists.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

from trainer import host
from trainer.training.runtime import connections

LISTENER_POLL_SECONDS = 0.001
"""Seconds between two looks whether TensorFlow listens; connections made meanwhile are ended."""
LEFTOVERS_SECONDS = 1.0
"""Connections made in the millisecond before the restriction leave the listener's queue within this time."""

_LOOPBACK = b"lo"
_SO_ATTACH_FILTER = 26
"""The option's number in asm-generic/socket.h. Python's socket module lacks it."""
_FILTER = [
    (0x20, 0, 0, 0xFFFFF008),  # load the index of the device that received the packet (SKF_AD_IFINDEX)
    (0x15, 0, 1, 1),  # 1 is loopback in every network namespace (LOOPBACK_IFINDEX)
    (0x06, 0, 0, 0xFFFFFFFF),  # keep it
    (0x06, 0, 0, 0),  # drop it
]
"""Classic BPF: (code, jump if true, jump if false, operand)."""


def warning(task: str, port: int, reason: str) -> str:
    return (
        f"warning: other machines can connect to port {port} of {task} ({reason}), and TensorFlow lets them run code "
        "as this user; block the port in the firewall"
    )


def close(port: int, warn: Callable[[str], None]) -> None:
    """Lets only this machine connect to a port, from the moment that this process listens on it; returns at once.

    Args:
        warn: called with the reason if that fails.
    """
    if not host.LINUX:
        warn("only Linux can restrict a listener to the loopback device")
        return
    seen: set[int] = set()
    try:
        _close(port, seen, warn)
    except OSError as error:  # without /proc
        warn(f"{error.filename}: {error.strerror}")
        return
    threading.Thread(target=_keep_closing, args=(port, seen, warn), daemon=True).start()


def _keep_closing(port: int, seen: set[int], warn: Callable[[str], None]) -> None:
    while not seen:
        time.sleep(LISTENER_POLL_SECONDS)
        _close(port, seen, warn)
    deadline = time.monotonic() + LEFTOVERS_SECONDS
    while time.monotonic() < deadline:
        time.sleep(10 * LISTENER_POLL_SECONDS)
        _close(port, seen, warn)


def _close(port: int, seen: set[int], warn: Callable[[str], None]) -> None:
    """Restricts listeners that are not among the inodes in `seen`, then ends connections with other machines."""
    for each in _sockets(port):
        inode = os.fstat(each.fileno()).st_ino
        if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and inode not in seen:
            seen.add(inode)
            if (reason := _restrict(each)) is not None:
                warn(reason)
    for each in _sockets(port) if seen else ():
        if not each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and not _is_local(each.getsockname()[0]):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _restrict(listener: socket.socket) -> str | None:
    """Restricts a listener to packets from the loopback device; returns the reason if that fails.

    There are two ways, each of which suffices. Binding to a device needs Linux 5.7 or root, and does not affect
    handshakes in progress; the filter ends those too, but some kernels allow it to root only.
    """
    ways: list[Callable[[socket.socket], None]] = [_attach_filter, _bind_to_loopback]
    reasons = []
    for way in ways:
        try:
            way(listener)
        except OSError as error:
            reasons.append(error.strerror or str(error))
    return reasons[-1] if len(reasons) == len(ways) else None


def _attach_filter(listener: socket.socket) -> None:
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in _FILTER)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HP", len(_FILTER), ctypes.addressof(buffer))  # struct sock_fprog
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def _bind_to_loopback(listener: socket.socket) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _LOOPBACK)


def _sockets(port: int) -> Iterator[socket.socket]:
    """Yields this process's sockets with that local port."""
    for each in connections.sockets():
        with contextlib.suppress(OSError):
            if each.getsockname()[1] == port:
                yield each


def _is_local(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback
