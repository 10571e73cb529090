"""Processes that a child starts, in every way that Python offers, and that outlive it."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainer import host
from trainer.job import environment
from trainer.supervisor.children import orphans

WAYS = {
    "fork": "if os.fork() == 0: report(); time.sleep(600)",
    "daemon": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: report(); time.sleep(600)
    os._exit(0)""",
    "multiprocessing fork": "multiprocessing.get_context('fork').Process(target=sleep).start()",
    "multiprocessing spawn": "multiprocessing.get_context('spawn').Process(target=sleep).start()",
    "multiprocessing forkserver": "multiprocessing.get_context('forkserver').Process(target=sleep).start()",
    "Popen": "subprocess.Popen([sys.executable, __file__])",
    "Popen in a session of its own": "subprocess.Popen([sys.executable, __file__], start_new_session=True)",
    "Popen without environment": "subprocess.Popen([sys.executable, __file__], env={})",
}
PROGRAM = """
import multiprocessing, os, pathlib, subprocess, sys, time
def report(): pathlib.Path({report!r}).write_text(str(os.getpid()) + '\\n')
def sleep(): report(); time.sleep(600)
if __name__ == '__main__':
    if os.getppid() != {parent}: sleep()  # started by Popen
    {way}
    sys.stdin.read()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str, str], tuple["subprocess.Popen[bytes]", int]]]:
    """Runs a program that starts a process in that way, with that mark; gives it, and the process id of the other."""
    started = []

    def start(way: str, mark: str) -> tuple["subprocess.Popen[bytes]", int]:
        (tmp_path / "pid").unlink(missing_ok=True)
        report, program = tmp_path / "pid", tmp_path / "program.py"
        lines = WAYS[way].replace("\n", "\n    ")
        program.write_text(PROGRAM.format(report=str(report), parent=os.getpid(), way=lines))
        leader = subprocess.Popen(
            [sys.executable, str(program)], env={**os.environ, environment.CHILD: mark}, start_new_session=True,
            stdin=subprocess.PIPE,
        )  # fmt: skip
        started.append(leader)
        deadline = time.monotonic() + 30
        while not report.exists() or not report.read_text().endswith("\n"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return leader, int(report.read_text())

    yield start
    for leader in started:
        orphans.kill_group(leader.pid)
        leader.communicate()


@pytest.mark.parametrize("way", WAYS)
def test_what_a_child_started_ends_with_it(
    way: str, start: Callable[..., tuple["subprocess.Popen[bytes]", int]]
) -> None:
    mark = orphans.mark(os.getpid())
    leader, other = start(way, mark)
    leader.kill()
    leader.wait()
    assert host.started(other), "it outlives its parent"
    asyncio.run(orphans.end(mark, leader.pid))
    assert not host.started(other)


def test_the_port_of_a_process_that_ended_is_free() -> None:
    """Its memory goes first, which takes a while."""
    program = """
import socket, time
listener, memory = socket.create_server(("127.0.0.1", 0)), b"x" * (500 << 20)
print(listener.getsockname()[1], flush=True)
time.sleep(600)
"""
    mark = orphans.mark(os.getpid())
    environ = {**os.environ, environment.CHILD: mark}
    with subprocess.Popen([sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        asyncio.run(orphans.end(mark, process.pid))
        socket.create_server(("127.0.0.1", port)).close()


def test_those_of_other_children_are_left_alone(start: Callable[..., tuple["subprocess.Popen[bytes]", int]]) -> None:
    leader, other = start("daemon", orphans.mark(7))
    asyncio.run(orphans.end(orphans.mark(8), other))
    asyncio.run(orphans.end_left_over())
    assert host.started(other), "their supervisor, this process, lives"
    asyncio.run(orphans.end(orphans.mark(7), leader.pid))
    assert not host.started(other)


def test_those_of_a_supervisor_that_is_gone_are_left_over(
    start: Callable[..., tuple["subprocess.Popen[bytes]", int]],
) -> None:
    namespace, pid, started, number = orphans.mark(1).split(":")
    another = f"{namespace}:{pid}:{int(started) + 1}:{number}"  # the same process id, at another time
    _, other = start("daemon", f"1{another}")
    asyncio.run(orphans.end_left_over())
    assert host.started(other), "of another pid namespace: that of a container"
    asyncio.run(orphans.end(f"1{another}", other))
    assert not host.started(other)
    _, other = start("daemon", another)
    asyncio.run(orphans.end_left_over())
    assert not host.started(other)


@pytest.mark.parametrize("way", ["fork", "multiprocessing spawn", "Popen"])
def test_without_proc_those_of_the_group_end(
    way: str, start: Callable[..., tuple["subprocess.Popen[bytes]", int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "LINUX", False)
    leader, other = start(way, orphans.mark(1))
    leader.kill()
    leader.wait()
    asyncio.run(orphans.end(orphans.mark(1), leader.pid))
    assert not host.started(other)


def test_a_folder_of_a_supervisor_that_is_gone_is_removed() -> None:
    namespace, pid, started, number = orphans.mark(1).split(":")
    left, ours = orphans.folder(f"{namespace}:{pid}:{int(started) + 1}:{number}"), orphans.folder(orphans.mark(1))
    (left / "reports").touch()
    asyncio.run(orphans.end_left_over())
    assert not left.exists()
    assert ours.exists(), "its supervisor, this process, lives"
    ours.rmdir()
