"""The socket at which a task listens for gradients; and who owns a socket: the user at the other end of a connection
over loopback, and the process that holds a port.

These owners are known only on Linux. Elsewhere each connection counts as this user's, and the process that holds a port
is not named.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
import socket
import struct
from pathlib import Path

from trainer import host
from trainer.job.cluster import Task
from trainer.job.errors import UserError
from trainer.job.names import gradients_port

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20


def listen_for_gradients(task: Task) -> socket.socket:
    """A socket to which the task before this one connects: on loopback if the whole cluster is there, otherwise at the
    port that a NetworkPolicy allows, or any if that is taken.

    Raises:
        UserError: no port is free.
    """
    assert task.address is not None
    name, port = task.address
    if task.on_loopback:
        return socket.create_server((name, 0), family=socket.AF_INET6 if ":" in name else socket.AF_INET)
    families = (True, False) if socket.has_dualstack_ipv6() else (False,)
    for wanted, any_family in itertools.product((gradients_port(port), 0), families):
        family = socket.AF_INET6 if any_family else socket.AF_INET
        # Another task of this machine may have the port, or it is beyond 65535; a host may have no IPv6.
        with contextlib.suppress(OSError, OverflowError):
            return socket.create_server(("", wanted), family=family, dualstack_ipv6=any_family)
    raise UserError(f"{task.name}: no port is free to listen on for gradients")


def is_own(user: int | None) -> bool:
    """Whether a user whom `user_of` gives may use a port of this user alone."""
    return user in (0, os.getuid())


def user_of(peer: tuple[object, ...], ours: tuple[object, ...]) -> int | None:
    """The user at the other end of a connection over loopback: this user where that cannot be known, and None if the
    peer has closed its socket, so that it waits for no answer.

    Args:
        peer, ours: the addresses of both ends, as a socket names them.
    """
    if not host.LINUX or not ipaddress.ip_address(str(peer[0])).is_loopback:
        return os.getuid()
    try:
        found = _owner(peer, ours)
    except OSError:  # a kernel or sandbox without these
        return os.getuid()
    # A socket that is closed has no inode, and belongs to root.
    return None if found is None or found[1] == 0 else found[0]


def _owner(peer: tuple[object, ...], ours: tuple[object, ...]) -> tuple[int, int] | None:
    """User and inode of a socket, by sock_diag(7), which finds it without a look at all others; None if it is gone."""
    addresses = [ipaddress.ip_address(str(each[0])).packed for each in (peer, ours)]
    family = socket.AF_INET if len(addresses[0]) == 4 else socket.AF_INET6
    ports = struct.pack("!HH", peer[1], ours[1])
    identity = ports + b"".join(each.ljust(16, b"\0") for each in addresses) + b"\0" * 4 + b"\xff" * 8
    asked = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + identity
    header = struct.pack("=IHHII", 16 + len(asked), _SOCK_DIAG_BY_FAMILY, 1, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.sendto(header + asked, (0, 0))
        answer = kernel.recv(4096)
    if struct.unpack_from("=H", answer, 4)[0] == _SOCK_DIAG_BY_FAMILY:
        user, inode = struct.unpack_from("=II", answer, 16 + 64)
        return user, inode
    return _owner_in_table(family, peer, ours)  # also where the kernel lacks the module for TCP


def _owner_in_table(family: int, peer: tuple[object, ...], ours: tuple[object, ...]) -> tuple[int, int] | None:
    def shown(end: tuple[object, ...]) -> str:
        packed = ipaddress.ip_address(str(end[0])).packed
        words = struct.unpack(f"!{len(packed) // 4}I", packed)
        return "".join(f"{socket.ntohl(word):08X}" for word in words) + f":{end[1]:04X}"

    wanted = f" {shown(peer)} {shown(ours)} "
    for line in Path("/proc/net/tcp" if family == socket.AF_INET else "/proc/net/tcp6").read_text().splitlines():
        if wanted in line:
            fields = line.split()
            return int(fields[7]), int(fields[9])
    return None


def listener(port: int) -> int | None:
    """Process id of what listens on this TCP port; None if it is not visible (proc(5))."""
    if not host.LINUX:
        return None
    names = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
            names |= {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(descriptor.readlink().name in names for descriptor in (process / "fd").iterdir()):
                return int(process.name)
    return None


def port_in_use(task: Task, why: str | None = None) -> UserError:
    """An error that names this task's TensorFlow port, and the process that holds it if that is visible."""
    assert task.address is not None
    port = task.address[1]
    holder = listener(port)
    name = f"process {holder} ({host.process_name(holder)})" if holder else "what holds it"
    return UserError(
        f"port {port} (TensorFlow port of {task.name}) cannot be used: {why or 'Address already in use'}; "
        f"stop {name}, or change this task's port in TF_CONFIG"
    )
