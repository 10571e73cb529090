"""Hosts with slow links on one machine: network namespaces around a switch, each on a link of a chosen bandwidth.

Links are veth pairs with a token bucket (tc-tbf(8)) at both ends, so each host has the bandwidth in both directions, as
on Ethernet. They add no latency.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

BURSTS = {10_000: "4mb", 1_000: "256kb", 100: "128kb"}
"""By Mbit/s: what a link may send at once. With less, the kernel's timer would limit 10 Gbit/s; with more, a slow link
would send whole gradients at the speed of memory. A packet of up to 64 KiB that waits while the bandwidth changes must
be smaller, or it waits for ever."""
QUEUE = "20ms"
"""Of packets that wait for a link; later ones are dropped."""
PORT = 9000
SECONDS = 2.0
"""How long the check of a link takes at its bandwidth, at most."""


def problem() -> str | None:
    """Why this machine cannot have such hosts; None if it can."""
    if missing := [name for name in ("ip", "tc", "taskset") if shutil.which(name) is None]:
        return f"{', '.join(missing)}: not found: needs Linux with iproute2 and util-linux"
    if os.geteuid() != 0:
        return "needs root, to make network namespaces: sudo"
    return None


class Hosts:
    """A switch and hosts 0 to count - 1."""

    def __init__(self, count: int) -> None:
        self._names = [f"bench{os.getpid()}-{i}" for i in range(count)]
        self._switch = f"bench{os.getpid()}-switch"

    def make(self) -> None:
        _ip(f"netns add {self._switch}")
        _ip(f"-n {self._switch} link add name switch type bridge")
        _ip(f"-n {self._switch} link set dev switch up")
        for i, name in enumerate(self._names):
            _ip(f"netns add {name}")
            _ip(f"-n {self._switch} link add name port{i} type veth peer name link{i} netns {name}")
            _ip(f"-n {name} addr add {self.address(i)}/24 dev link{i}")
            for device in ("lo", f"link{i}"):
                _ip(f"-n {name} link set dev {device} up")
            _ip(f"-n {self._switch} link set dev port{i} master switch")
            _ip(f"-n {self._switch} link set dev port{i} up")
            # Linux' default: this machine may have another, and a job more or less of its link by that.
            _ip(f"-n {name} route change {self.address(i)[:-1]}0/24 dev link{i} congctl cubic")

    def remove(self) -> None:
        """Their links and buckets go with them."""
        for name in (*self._names, self._switch):
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def device(self, host: int) -> str:
        return f"link{host}"

    def command(self, host: int) -> list[str]:
        """What runs a command on a host."""
        return ["ip", "netns", "exec", self._names[host]]

    def limit(self, mbit: int, only: Collection[int] = ()) -> None:
        """Gives all links this bandwidth, also while they are in use.

        Args:
            only: hosts whose links get it.
        """
        bucket = f"root tbf rate {mbit}mbit burst {BURSTS[mbit]} latency {QUEUE}"
        for i, name in enumerate(self._names):
            if only and i not in only:
                continue
            for namespace, device in ((name, self.device(i)), (self._switch, f"port{i}")):
                subprocess.run(["tc", "-n", namespace, *f"qdisc replace dev {device} {bucket}".split()], check=True)

    def measured(self, mbit: int) -> float:
        """Mbit/s of one TCP connection from host 0 to host 1, without headers."""
        script = [sys.executable, "-c", f"from bench import namespaces as n; n.{{}}({self.address(1)!r}, {mbit})"]
        receive, send = ([*self.command(i), *script[:2], script[2].format(f)] for i, f in ((1, "receive"), (0, "send")))
        with subprocess.Popen(receive, stdout=subprocess.PIPE, text=True) as receiver:
            assert receiver.stdout is not None
            receiver.stdout.readline()
            subprocess.run(send, check=True)
            return float(receiver.communicate(timeout=10 * SECONDS)[0])


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """Removed when the context is left, also by SIGTERM and SIGHUP."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    made = Hosts(count)
    with ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, number, signal.signal(number, leave))
        stack.callback(made.remove)
        made.make()
        yield made


def receive(address: str, _mbit: int) -> None:
    """Prints Mbit/s from the first byte to the last."""
    with socket.create_server((address, PORT)) as server:
        print("listening", flush=True)
        connection = server.accept()[0]
        total, begun = len(connection.recv(1)), time.perf_counter()
        with connection, suppress(ConnectionError):
            while got := len(connection.recv(2**20)):
                total += got
        print(8e-6 * total / (time.perf_counter() - begun))


def send(address: str, mbit: int) -> None:
    chunk, left = bytes(2**18), SECONDS / 2 * mbit * 1e6 / 8
    with socket.create_connection((address, PORT), timeout=10 * SECONDS) as connection:
        while left > 0:
            connection.sendall(chunk)
            left -= len(chunk)


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)
