"""A task that hangs in a pod is named with its line, without privileges; `trainer stacks` shows it meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kind.cluster import Namespace, trainer
from tests.tools.hangs import HANGS

SLOW = [name if name == "dns" else pytest.param(name, marks=pytest.mark.slow) for name in HANGS]


@pytest.mark.parametrize("name", SLOW)
def test_a_task_that_hangs_is_named_with_its_line(namespace: Namespace, tmp_path: Path, name: str) -> None:
    hang = HANGS[name]
    job = namespace.submit_spec(tmp_path, hang.write(tmp_path))
    if hang.stops:
        job.until_step(5)
        child = job.child_pid(hang.stops)
        task_type, _, index = hang.stops.partition(":")
        program = f"import os, signal; os.kill({child}, signal.SIGSTOP)"
        namespace.kubectl("exec", job.newest(task_type, int(index)), "--", "python3", "-c", program)
    elif name == "dns":
        job.until_step(10)
        shown = trainer("stacks", "--namespace", namespace.name, job.name)
        assert "worker:1: " in shown
    job.until(hang.names, lambda s: any(hang.names in event["text"] for event in s["events"]), 240)
