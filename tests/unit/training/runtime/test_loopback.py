"""Sockets of this process, contacted from this machine and from another network."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.tools.network import Neighbour, neighbour
from trainer import host
from trainer.training.runtime import loopback


@pytest.fixture(scope="module")
def outside() -> Iterator[Neighbour]:
    with neighbour() as found:
        yield found


def listening(host: str = "::") -> socket.socket:
    """On all interfaces, as TensorFlow's server; with "::" for IPv4 and IPv6."""
    if ":" not in host:
        return socket.create_server((host, 0))
    return socket.create_server((host, 0), family=socket.AF_INET6, dualstack_ipv6=True)


def port_of(server: socket.socket) -> int:
    port: int = server.getsockname()[1]
    return port


def unexpected(reason: str) -> None:
    raise AssertionError(reason)


@contextlib.contextmanager
def closed(server: socket.socket) -> Iterator[int]:
    with server:
        loopback.close(port_of(server), unexpected)
        yield port_of(server)


@pytest.mark.parametrize("host", ["::", "0.0.0.0"])
def test_only_this_machine_reaches_a_port_that_is_closed(host: str, outside: Neighbour) -> None:
    with listening() as other, closed(listening(host)) as port:
        assert outside.reaches([port, port_of(other)]) == {(each, port_of(other)) for each in outside.hosts}
        for mine in ("127.0.0.1", "127.5.5.5", *(["::1"] if host == "::" else [])):
            socket.create_connection((mine, port), 5).close()


@pytest.mark.parametrize("way", [loopback._attach_filter, loopback._bind_to_loopback])
def test_each_of_the_two_ways_suffices(way: object, outside: Neighbour) -> None:
    assert callable(way)
    with listening() as server:
        way(server)
        assert outside.reaches([port_of(server)]) == set()
        socket.create_connection(("::1", port_of(server)), 5).close()


def test_a_port_is_closed_as_soon_as_this_process_listens_on_it(outside: Neighbour) -> None:
    with socket.socket() as server:
        server.bind(("", 0))
        loopback.close(port_of(server), unexpected)
        server.listen()
        deadline = time.monotonic() + 10
        while outside.reaches([port_of(server)]):
            assert time.monotonic() < deadline
        socket.create_connection(("127.0.0.1", port_of(server)), 5).close()


def test_connections_that_came_before_are_ended_if_they_are_of_other_machines(outside: Neighbour) -> None:
    with listening() as server, socket.create_connection(("127.0.0.1", port_of(server))) as mine:
        kept, _ = server.accept()
        with kept, outside.connected(port_of(server)) as process, outside.connected(port_of(server)) as queued:
            assert process.stdout is not None
            assert queued.stdout is not None
            theirs, _ = server.accept()
            with theirs:
                loopback.close(port_of(server), unexpected)
                assert process.stdout.readline() == "ended\n"
            waiting, _ = server.accept()
            with waiting:
                assert queued.stdout.readline() == "ended\n"
            kept.sendall(b"x")
            assert mine.recv(1) == b"x"


RESTRICT = """
import os, socket, sys
from trainer import host
from trainer.training.runtime import loopback
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
server = socket.create_server(("", 0))
exec(sys.argv[1])
loopback.close(server.getsockname()[1], lambda reason: print("reason:", reason, flush=True))
print("port:", server.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def user(before: str = "") -> Iterator[list[str]]:
    """What a process without root's rights prints that closes a port, after doing something to its socket."""
    if os.geteuid() != 0:
        pytest.skip("becomes another user, which needs root")
    command = [sys.executable, "-c", RESTRICT, before]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        while not lines[-1].startswith("port:"):
            assert lines[-1], lines
            lines.append(process.stdout.readline())
        yield [line.rstrip("\n") for line in lines]
        process.communicate("")


def test_a_user_without_rights_closes_ports_too(outside: Neighbour) -> None:
    with user() as lines:
        (line,) = lines
        port = int(line.removeprefix("port: "))
        assert outside.reaches([port]) == set()
        socket.create_connection(("127.0.0.1", port), 5).close()


def test_the_reason_is_reported_where_a_port_stays_open() -> None:
    # What is bound to a device cannot be bound again but by root, and SO_LOCK_FILTER (44) allows no other filter.
    locked = "server.setsockopt(1, 25, b'lo'); server.setsockopt(1, 44, 1)"
    with user(locked) as lines:
        assert lines[0] == "reason: Operation not permitted"
        assert len(lines) == 2


def test_the_warning_names_task_port_and_risk() -> None:
    text = loopback.warning("worker:1", 10001, "Operation not permitted")
    assert re.search(r"^warning: .*port 10001 of worker:1 .*not permitted.* run code as this user", text)


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:192.0.2.2", False),
        ("192.0.2.2", False),
        ("fe80::1%eth0", False),
    ],
)
def test_local_addresses(address: str, local: bool) -> None:
    assert loopback._is_local(address) == local


def test_outside_linux_the_warning_names_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LINUX", False)
    reasons: list[str] = []
    with listening() as server:
        loopback.close(port_of(server), reasons.append)
    assert reasons == ["only Linux can restrict a listener to the loopback device"]
