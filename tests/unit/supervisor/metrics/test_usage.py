"""Processor time, memory and network: of folders as the kernel shows them, and of real processes."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer import host
from trainer.job import environment
from trainer.protocol.reports import Used
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.main import metrics_text
from trainer.supervisor.metrics import usage
from trainer.supervisor.metrics.gpus import Gpu
from trainer.supervisor.metrics.usage import Meter, Usage

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


def test_rates_are_between_two_measurements() -> None:
    before = Usage(10.0, 500, None, received=1000, sent=0)
    now = Usage(15.0, 600, None, received=6000, sent=250)
    assert usage.between(before, now, 2.5, []) == Used(cpu=2.0, memory=600, received=2000.0, sent=100.0)


def test_what_is_not_known_or_begins_anew_is_not_known() -> None:
    now = Usage(1.0, 600, None)
    assert usage.between(None, now, 5.0, []) == Used(memory=600)
    assert usage.between(Usage(10.0, 1, None, 5, 5), now, 5.0, []) == Used(memory=600)
    assert usage.between(now, None, 5.0, []) == Used()


def test_the_gpus_of_a_task_are_one_figure() -> None:
    gpus = [Gpu(0, "a", 0.5, 100, 1000), Gpu(1, "b", 1.0, 200, 1000), Gpu(2, "part of one", None, None, None)]
    assert usage.between(None, None, 5.0, gpus) == Used(gpu=0.75, gpu_memory=300)


@linux
def test_a_process_that_computes_uses_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.PARENT, str(os.getpid()))
    before, then = usage.read(), time.process_time()
    while time.process_time() < then + 0.5:
        pass
    found = usage.between(before, usage.read(), 0.5, [])
    assert found.cpu is not None
    assert found.cpu > 0.8
    assert found.received is None  # of all processes of the machine


DEVICES = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 9999999    1    0    0    0     0          0         0  9999999    1    0    0    0     0       0          0
  eth0:    1000    7    0    0    0     0          0         0      200    7    0    0    0     0       0          0
net1:20 1 0 0 0 0 0 0 3 1 0 0 0 0 0 0
"""  # noqa: E501 (as the kernel writes it)


@pytest.mark.parametrize(
    ("text", "found"), [(DEVICES, (1020, 203)), ("", (0, 0)), ("a\nb\nrubbish\n", (None, None)), (None, (None, None))]
)
def test_the_network_is_that_of_all_devices_but_loopback(
    text: str | None, found: tuple[int | None, int | None], tmp_path: Path
) -> None:
    (tmp_path / "self/net").mkdir(parents=True)
    if text is not None:
        (tmp_path / "self/net/dev").write_text(text)
    assert usage._network(tmp_path) == found


@linux
def test_a_kernel_that_does_not_tell_children_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text(Path("/proc/self/stat").read_text())
    assert usage._of_processes(tmp_path, 7) is None


def test_one_reading_serves_reports_and_scrapes(chief: Chief, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = (Usage(float(number), number, None) for number in itertools.count(1))
    monkeypatch.setattr(usage, "read", lambda: next(readings))
    monkeypatch.setattr(usage, "READ_SECONDS", 0.01)
    agent, meter = chief._agent, Meter(chief._agent)

    async def until_reported() -> Used:
        reading = asyncio.create_task(meter.run())
        while agent.used is None:
            await asyncio.sleep(0.001)
        reading.cancel()
        return agent.used

    reported = asyncio.run(asyncio.wait_for(until_reported(), 20))
    assert reported.cpu is not None
    scraped = metrics_text(agent, meter, chief.status).decode()
    assert f'trainer_memory_bytes{{job_name="j",task="worker:0"}} {reported.memory:.1f}' in scraped
    assert next(readings).memory == (reported.memory or 0) + 1, "a scrape reads nothing itself"
