"""A task that hangs in a pod is named with its line, without privileges. Each commit tries another reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kind.cluster import Namespace
from tests.tools.hangs import HANGS

pytestmark = pytest.mark.part("kubernetes")

ONE_EACH = [pytest.param(name, marks=pytest.mark.slow(parts=len(HANGS), turn=i)) for i, name in enumerate(HANGS)]


@pytest.mark.parametrize("name", ONE_EACH)
def test_a_task_that_hangs_is_named_with_its_line(namespace: Namespace, tmp_path: Path, name: str) -> None:
    hang = HANGS[name]
    job = namespace.submit_spec(tmp_path, hang.write(tmp_path))
    if hang.stops:
        job.until_step(5)
        child = job.child_pid(hang.stops)
        task_type, _, index = hang.stops.partition(":")
        program = f"import os, signal; os.kill({child}, signal.SIGSTOP)"
        namespace.kubectl("exec", job.newest(task_type, int(index)), "--", "python3", "-c", program)
    job.until(hang.names, lambda s: any(hang.names in event["text"] for event in s["events"]), 240)
