"""Processes that a child starts in every way that Python has, and that outlive it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainer.runtime import orphans

WAYS = {
    "fork": "if os.fork() == 0: told(); time.sleep(600)",
    "daemon": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: told(); time.sleep(600)
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
def told(): pathlib.Path({told!r}).write_text(str(os.getpid()) + '\\n')
def sleep(): told(); time.sleep(600)
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
        told, program = tmp_path / "pid", tmp_path / "program.py"
        lines = WAYS[way].replace("\n", "\n    ")
        program.write_text(PROGRAM.format(told=str(told), parent=os.getpid(), way=lines))
        leader = subprocess.Popen(
            [sys.executable, str(program)], env={**os.environ, orphans.VARIABLE: mark}, start_new_session=True,
            stdin=subprocess.PIPE,
        )  # fmt: skip
        started.append(leader)
        deadline = time.monotonic() + 30
        while not told.exists() or not told.read_text().endswith("\n"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return leader, int(told.read_text())

    yield start
    for leader in started:
        orphans.kill_group(leader.pid)
        leader.communicate()


def ended(pid: int) -> bool:
    """Within a deadline; a zombie has ended."""
    deadline = time.monotonic() + 10
    while orphans._started(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("way", WAYS)
def test_what_a_child_started_ends_with_it(
    way: str, start: Callable[..., tuple["subprocess.Popen[bytes]", int]]
) -> None:
    mark = orphans.mark(os.getpid())
    leader, other = start(way, mark)
    leader.kill()
    leader.wait()
    assert orphans._started(other), "it outlives its parent"
    orphans.kill_group(leader.pid)
    orphans.kill(mark)
    assert ended(other)


def test_those_of_other_children_are_left_alone(start: Callable[..., tuple["subprocess.Popen[bytes]", int]]) -> None:
    _, other = start("daemon", orphans.mark(7))
    assert orphans.kill(orphans.mark(8)) == 0
    orphans.kill_left_over()
    assert orphans._started(other), "their supervisor, this process, lives"
    assert orphans.kill(orphans.mark(7)) >= 1
    assert ended(other)


def test_those_of_a_supervisor_that_is_gone_are_left_over(
    start: Callable[..., tuple["subprocess.Popen[bytes]", int]],
) -> None:
    namespace, pid, started, number = orphans.mark(1).split(":")
    another = f"{namespace}:{pid}:{int(started) + 1}:{number}"  # the same process id, at another time
    _, other = start("daemon", f"1{another}")
    orphans.kill_left_over()
    assert orphans._started(other), "of another pid namespace: that of a container"
    orphans.kill(f"1{another}")
    assert ended(other)
    _, other = start("daemon", another)
    orphans.kill_left_over()
    assert ended(other)
