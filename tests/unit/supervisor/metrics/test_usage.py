"""Processor time and memory: of folders as the kernel shows them, and of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer import host
from trainer.supervisor.metrics import usage

linux = pytest.mark.skipif(not host.LINUX, reason="only Linux has /proc and cgroups")
V2 = {
    "cgroup.controllers": "cpu memory",
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
    "memory.current": "1000",
    "memory.stat": "anon 600\ninactive_file 300\n",
}
V1 = {
    "cpuacct/cpuacct.usage": "2500000000",
    "memory/memory.usage_in_bytes": "1000",
    "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 300\n",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("files", [V2, V1], ids=["v2", "v1"])
def test_a_container_has_its_cgroup(files: dict[str, str], tmp_path: Path) -> None:
    found = usage._of_container(write(tmp_path, files))
    assert found is not None
    assert found[:2] == (2.5, 700)


ROOT_V2 = {name: text for name, text in V2.items() if name != "memory.current"}


@pytest.mark.parametrize("files", [ROOT_V2, V1 | {"memory/release_agent": ""}, {}], ids=["v2", "v1", "none"])
def test_the_root_cgroup_is_of_the_machine(files: dict[str, str], tmp_path: Path) -> None:
    assert usage._of_container(write(tmp_path, files)) is None


BURN = """
import subprocess, sys, time
deep = int(sys.argv[1])
block = bytearray(40 * 2**20)
until = time.process_time() + 0.2
while time.process_time() < until: pass
command = [sys.executable, "-c", sys.argv[2], str(deep - 1), sys.argv[2]]
if deep: child = subprocess.Popen(command)
else: print("ready", flush=True)
sys.stdin.readline()
if deep: child.wait()
"""


@linux
def test_processes_count_with_all_that_they_started_also_after_its_end() -> None:
    command = [sys.executable, "-c", BURN, "2", BURN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        alone = usage._of_processes(usage._PROC, process.pid)
        own = usage._of_processes(usage._PROC, os.getpid())
        assert alone is not None
        assert own is not None
        assert alone.cpu_seconds >= 3 * 0.2 - 0.1
        assert alone.memory >= 3 * 40 * 2**20
        assert own.memory >= alone.memory
        process.stdin.close()
    after = usage._of_processes(usage._PROC, os.getpid())
    assert after is not None
    assert after.cpu_seconds >= own.cpu_seconds


def test_a_process_that_is_gone_is_not_known(tmp_path: Path) -> None:
    assert usage._of_processes(tmp_path, 1) is None
