"""A task that hangs in a pod is named with its line, without privileges; `trainer stacks` shows it meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hangs import HANGS
from tests.kind.cluster import Namespace, trainer

# Across two nodes the collective of another task fails with UnavailableError before the stopped one is missed: the job
# goes on in a new generation, and the log does not name the task that was stopped.
NOT_NAMED = pytest.mark.xfail(reason="a stopped task in pods is not named yet: its peer fails first", strict=False)
MARKS = {name: [pytest.mark.slow] for name in HANGS} | {"dns": [], "sigstop": [pytest.mark.slow, NOT_NAMED]}
SLOW = [pytest.param(name, marks=marks) for name, marks in MARKS.items()]


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
