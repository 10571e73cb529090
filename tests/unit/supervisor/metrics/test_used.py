"""What a task uses, from two measurements."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from trainer import host
from trainer.job import environment
from trainer.protocol.reports import Used
from trainer.supervisor.metrics import usage, used
from trainer.supervisor.metrics.gpus import Gpu
from trainer.supervisor.metrics.usage import Usage

linux = pytest.mark.skipif(not host.LINUX, reason="only Linux has /proc and cgroups")


def test_rates_are_between_two_measurements() -> None:
    before = Usage(10.0, 500, None, received=1000, sent=0)
    now = Usage(15.0, 600, None, received=6000, sent=250)
    assert used.of(before, now, 2.5, []) == Used(cpu=2.0, memory=600, received=2000.0, sent=100.0)


def test_what_is_not_known_or_begins_anew_is_not_known() -> None:
    now = Usage(1.0, 600, None)
    assert used.of(None, now, 5.0, []) == Used(memory=600)
    assert used.of(Usage(10.0, 1, None, 5, 5), now, 5.0, []) == Used(memory=600)
    assert used.of(now, None, 5.0, []) == Used()


def test_the_gpus_of_a_task_are_one_figure() -> None:
    gpus = [Gpu(0, "a", 0.5, 100, 1000), Gpu(1, "b", 1.0, 200, 1000), Gpu(2, "part of one", None, None, None)]
    assert used.of(None, None, 5.0, gpus) == Used(gpu=0.75, gpu_memory=300)


@linux
def test_a_process_that_computes_uses_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.PARENT, str(os.getpid()))
    before, then = usage.read(), time.process_time()
    while time.process_time() < then + 0.5:
        pass
    found = used.of(before, usage.read(), 0.5, [])
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
