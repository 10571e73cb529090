import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.supervisor.ports import HOST
from trainer.job.cluster import tasks_of
from trainer.job.load import build
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.task.agent import Agent


@pytest.fixture
def taken() -> Iterator[int]:
    """A port with a listener that never answers."""
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def free() -> int:
    """A port without a listener."""
    with socket.create_server((HOST, 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture
def chief(tmp_path: Path) -> Iterator[Chief]:
    """A chief of three workers, none of which came yet. It leads a job that is new."""
    tasks = {"worker": 3}
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": tasks, "model_dir": str(tmp_path)})
    task = tasks_of(spec)[0]
    chief = Chief(Agent(spec, task, Path(os.devnull)))
    chief._ready.set()
    yield chief
    chief._record.lock.close()
