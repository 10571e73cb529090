"""`trainer probe relay` as a process between a page's connection and the control port."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.unit.supervisor.ports import HOST

RELAY = "import sys; from trainer.supervisor import relay; sys.exit(relay.run({}))"


@contextmanager
def relaying(port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", RELAY.format(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(20)
        yield listener


def accepted(server: socket.socket) -> socket.socket:
    connection, _ = server.accept()
    connection.settimeout(20)
    return connection


def test_bytes_go_in_both_directions_unchanged(server: socket.socket) -> None:
    much = bytes(range(256)) * 4096
    with relaying(server.getsockname()[1]) as process, accepted(server) as there:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"\x00question\n")
        process.stdin.flush()
        assert there.recv(100) == b"\x00question\n"
        there.settimeout(None)
        there.sendall(much[:1000])
        assert process.stdout.read(1000) == much[:1000]
        there.sendall(much[1000:50_000])
        there.shutdown(socket.SHUT_WR)
        assert process.stdout.read() == much[1000:50_000]
        assert process.wait(20) == 0


def test_it_ends_when_who_asked_is_gone(server: socket.socket) -> None:
    with relaying(server.getsockname()[1]) as process, accepted(server) as there:
        assert process.stdin
        process.stdin.close()
        assert there.recv(100) == b""
        assert process.wait(20) == 0


def test_a_port_without_a_listener_is_named(free: int) -> None:
    with relaying(free) as process:
        assert process.wait(20) == 1
        assert process.stdout
        assert process.stderr
        assert process.stdout.read() == b""
        assert process.stderr.read().decode().startswith(f"port {free}: ")
