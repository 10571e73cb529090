"""Who reaches a job's ports."""

from __future__ import annotations

import time
from pathlib import Path

from tests.kind.cluster import Namespace
from tests.local import specs

KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
    print("open")
except OSError as error:
    print("closed", error)
"""


def knock(namespace: Namespace, job: str, address: str, port: int) -> str:
    words = ["exec", f"job/{job}", "--", "python3", "-c", KNOCK, address, str(port)]
    return namespace.kubectl(*words).split()[0]


def test_a_stranger_is_refused_and_without_the_policy_is_not(namespace: Namespace, tmp_path: Path) -> None:
    jobs = {}
    for name in ("digits", "stranger"):
        # The stranger may go out: what refuses it is the other's policy.
        spec = specs.mirrored(steps=100_000, kubernetes={"egress": name == "stranger"})
        jobs[name] = namespace.submit_spec(tmp_path, {**spec, "name": name})
        jobs[name].until_step(1)
    doors = [(pod["status"]["podIP"], port) for pod in jobs["digits"].pods() for port in (2222, 3222)]
    assert [knock(namespace, "stranger-worker", *door) for door in doors] == ["closed"] * 4
    assert [knock(namespace, "digits-worker", *door) for door in doors] == ["open"] * 4
    namespace.kubectl("delete", "networkpolicy", "digits")
    deadline = time.monotonic() + 30
    while [knock(namespace, "stranger-worker", *door) for door in doors] != ["open"] * 4:
        assert time.monotonic() < deadline, "nothing refuses the stranger any more, and it is not let in"
