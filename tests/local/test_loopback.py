"""Other machines cannot connect to any port of `trainer local`."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.specs import DEADLINES, PACED, mirrored, parameter_server
from tests.tools.harness import Job, processes
from tests.tools.network import Neighbour, neighbour
from trainer.job.cluster import tasks_of
from trainer.job.load import build

pytestmark = pytest.mark.slow

WAITING = """
import pathlib, time

def compute(cluster):
    cluster.progress(1)
    while not pathlib.Path(__file__).with_name("go").exists():
        time.sleep(0.05)
    return {}
"""


@pytest.fixture(scope="module")
def outside() -> Iterator[Neighbour]:
    with neighbour() as found:
        yield found


def graph(folder: Path) -> dict[str, Any]:
    (folder / "waiting.py").write_text(WAITING)
    tasks = {"worker": 2}
    return {"name": "g", "strategy": "graph", "workload": "waiting.py", "tasks": tasks, "deadlines": DEADLINES}


JOBS = {
    "parameter_server": lambda _: parameter_server(steps=30_000, workload=PACED, tasks={"evaluator": 1}),
    "multi_worker_mirrored": lambda _: mirrored(steps=30_000, workload=PACED),
    "graph": graph,
}


@pytest.mark.parametrize("kind", JOBS)
def test_other_machines_reach_no_port_of_a_job(kind: str, tmp_path: Path, outside: Neighbour) -> None:
    with Job(tmp_path, JOBS[kind](tmp_path)) as job:
        status = job.until_step(1)
        ports = listening(descendants(job.process.pid))
        tasks = [name for name in status["tasks"] if not name.startswith("evaluator")]
        # A TensorFlow port and a control port each, and one that keeps other runs from these.
        assert len(ports) >= 2 * len(tasks) + 1
        for port in ports:
            socket.create_connection(("127.0.0.1", port), 5).close()
        assert outside.reaches(ports) == set()
        assert "other machines can connect" not in job.output, "the warning of trainer/training/runtime/loopback.py"


ALONE = """
import sys
from trainer.job import load, tf_config
from trainer.training.runtime import loopback, strategy
spec = load.load_environment()
task = tf_config.from_environment(spec)
loopback.close(task.address[1], print)
strategy.make(spec, task)
"""


def test_a_port_is_closed_while_tensorflow_still_waits_for_peers(outside: Neighbour) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [one.getsockname()[1], other.getsockname()[1]]
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}})
    task = tasks_of(spec, lambda _, index: f"127.0.0.1:{ports[index]}")[0]
    environ = {**os.environ, "TF_CONFIG": task.tf_config(), "TRAINER_JOB": spec.model_dump_json()}
    with processes([([sys.executable, "-c", ALONE], environ)]) as (process,):
        deadline = time.monotonic() + 60
        while ports[0] not in listening([process.pid]):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        while outside.reaches(ports[:1]):
            assert time.monotonic() < deadline, "other machines reach it for as long as the peer is not there"
        socket.create_connection(("127.0.0.1", ports[0]), 5).close()
        assert process.poll() is None


def descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for thread in Path(f"/proc/{parent}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def listening(pids: list[int]) -> list[int]:
    """All ports on which one of these processes listens."""
    ports = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A":  # TCP_LISTEN
                ports[f"socket:[{cells[9]}]"] = int(cells[1].rpartition(":")[2], 16)
    found = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found.add(str(fd.readlink()))
    return sorted(port for link, port in ports.items() if link in found)
