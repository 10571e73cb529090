"""What tests of single tasks start from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.tasks import Environments, environment
from trainer.job import load
from trainer.job.cluster import Task, tasks_of
from trainer.targets.local import ports


@pytest.fixture
def environments() -> Iterator[Environments]:
    """Each task of a spec on local ports of the test's own, with the environment that a container would give it."""
    with contextlib.ExitStack() as stack:

        def make(spec: dict[str, Any], model_dir: Path) -> dict[str, tuple[Task, dict[str, str]]]:
            job = load.build({"model_dir": str(model_dir), **spec})
            taken = stack.enter_context(ports.reserve([task.name for task in tasks_of(job)], None))
            tasks = tasks_of(job, lambda task_type, index: f"127.0.0.1:{taken[f'{task_type}:{index}']}")
            return {task.name: (task, environment(task, job.model_dump_json(exclude_none=True))) for task in tasks}

        yield make
