"""Hosts with slow links, where they can be made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from bench import namespaces

pytestmark = pytest.mark.skipif(namespaces.problem() is not None, reason=str(namespaces.problem()))
SCRIPT = "from bench import namespaces as n\nwith n.hosts(2): print('made', flush=True); input()"


def names(pid: int) -> str:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in listed.splitlines() if line.startswith(f"bench{pid}-"))


def test_a_connection_has_the_bandwidth_of_its_link_which_may_change() -> None:
    with namespaces.hosts(2) as hosts:
        hosts.limit(100)
        assert 0 < hosts.measured(100) < 101
        hosts.limit(1000)
        assert 101 < hosts.measured(1000) < 1001
    assert names(os.getpid()) == ""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_they_are_removed_when_the_program_is_stopped(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"made\n"
        assert names(process.pid).count("bench") == 3
        process.send_signal(number)
        process.wait(30)
        assert names(process.pid) == ""
