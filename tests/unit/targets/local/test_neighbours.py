"""Who else uses this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from trainer import host
from trainer.targets.local import neighbours

STRANGER = 4321


@contextmanager
def process_of(user: int) -> Iterator[int]:
    """A process of that user, which shows that it runs."""
    program = f"import os, sys; os.setuid({user}); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.mark.parametrize(
    ("user", "cgroup", "seen"),
    [
        (STRANGER, "0::/user.slice/user-4321.slice/session-3.scope\n", True),
        (STRANGER, "0::/system.slice/docker-1f2e.scope\n", False),
        (STRANGER, "12:pids:/kubepods/besteffort/pod1\n", False),
        (33, "0::/system.slice/nginx.service\n", False),
        (0, "0::/init.scope\n", False),
        (65534, "0::/system.slice/dnsmasq.service\n", False),
    ],
)
def test_people_outside_containers_are_seen(user: int, cgroup: str, seen: bool) -> None:
    assert neighbours.other_user([(user, 7, cgroup)]) == (("4321", 7) if seen else None)


@pytest.mark.skipif(not host.LINUX or os.getuid() != 0, reason="only root can be another user")
def test_the_line_names_user_and_process() -> None:
    with process_of(STRANGER) as pid:
        found = neighbours.other_user()
        assert found is not None
        assert found[1] == pid or found[0] != "4321"
        assert neighbours.warning(*found).startswith(f"warning: user {found[0]} uses this machine too (process ")
