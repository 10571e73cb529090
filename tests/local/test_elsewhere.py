"""A job without Linux-specific features, as on macOS: no /proc, no affinity, no prctl (trainer/host.py)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.local.specs import PACED, parameter_server
from tests.tools.harness import Job, alive

pytestmark = pytest.mark.slow

# Every process of the job imports it at its start.
SITE = """
import sys
from pathlib import Path
from trainer import host

host.LINUX, host.DESCRIPTORS = False, Path("/dev/fd")

def refuse(event, args):
    if event in ("open", "os.listdir", "os.scandir") and str(args[0]).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", str(args[0]))

sys.addaudithook(refuse)
"""


def test_a_job_recovers_and_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITE)
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)
    spec = parameter_server(steps=30_000, workload=PACED, tasks={"ps": 1, "worker": 1})
    with Job(tmp_path, spec, environ={"PYTHONPATH": path}) as job:
        job.until_step(50)
        generation = job.status()["generation"]
        child = job.pid("chief:0")
        job.signal("chief:0", "pid")
        job.until_formed_again(generation)
        assert not alive(child), "it died with its supervisor"
        tasks = job.status()["tasks"].values()
        pids = [task[which] for task in tasks for which in ("pid", "child_pid")]
        assert all(map(alive, pids))
        job.process.kill()
        deadline = time.monotonic() + 60
        while any(map(alive, pids)):
            assert time.monotonic() < deadline, "they outlive `trainer local`"
            time.sleep(0.05)
    assert "only Linux can restrict a listener to the loopback device" in job.output
