"""A second machine on the network: a separate network namespace behind a veth pair."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

_CONNECT = """
import socket, sys
for address in sys.stdin.read().split():
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 2).close()
        print("connected")
    except OSError as error:
        print("refused", error)
"""
_STAY = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 20) as connection:
    print("connected", flush=True)
    print("ended" if connection.recv(1) == b"" else "data", flush=True)
"""


@dataclass(frozen=True)
class Neighbour:
    """`hosts` are this machine's addresses, IPv4 and IPv6, as the neighbour dials them."""

    name: str
    hosts: tuple[str, str]

    def reaches(self, ports: list[int]) -> set[tuple[str, int]]:
        """Those (host, port) that accept a connection."""
        where = [(host, port) for host in self.hosts for port in ports]
        done = subprocess.run(
            self.command(_CONNECT), input=" ".join(f"{host}:{port}" for host, port in where),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        answers = done.stdout.splitlines()
        return {each for each, answer in zip(where, answers, strict=True) if answer == "connected"}

    @contextlib.contextmanager
    def connected(self, port: int) -> Iterator[subprocess.Popen[str]]:
        """A process that has connected to a port, and prints "ended" when the other end closes that connection."""
        command = self.command(_STAY, self.hosts[0], str(port))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "connected\n"
                yield process
            finally:
                process.kill()

    def command(self, program: str, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, sys.executable, "-c", program, *words]


@contextlib.contextmanager
def neighbour() -> Iterator[Neighbour]:
    """Skips the test where namespaces and devices cannot be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a second network needs root, and ip of the package iproute2")
    number = os.getpid() % 2**14
    name, here, there = f"trainer-{number}", f"tr-a{number}", f"tr-b{number}"
    # Blocks that no network has: of benchmarks (RFC 2544), and of unique local addresses (RFC 4193).
    ours, theirs = (f"198.18.{number // 64}.{number % 64 * 4 + last}" for last in (1, 2))
    ours6, theirs6 = (f"fd77:{number:x}::{last}" for last in (1, 2))
    commands = [
        f"ip netns add {name}",
        f"ip link add {here} type veth peer name {there} netns {name}",
        f"ip addr add {ours}/30 dev {here}",
        f"ip link set {here} up",
        f"ip -n {name} addr add {theirs}/30 dev {there}",
        f"ip -n {name} link set {there} up",
        f"ip addr add {ours6}/64 dev {here} nodad",
        f"ip -n {name} addr add {theirs6}/64 dev {there} nodad",
    ]
    try:
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"{command}: {done.stderr.strip()}")
        found = Neighbour(name, (ours, ours6))
        # Or nothing of what is asked below would mean anything.
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
            assert len(found.reaches([server.getsockname()[1]])) == 2
        yield found
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)  # with the pair
