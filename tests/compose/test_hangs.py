"""A task that hangs in a container is named with its line, without privileges; `trainer stacks` shows it meanwhile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compose.project import Project, run_in, trainer
from tests.tools.hangs import HANGS

SLOW = [name if name == "lock" else pytest.param(name, marks=pytest.mark.slow) for name in HANGS]


@pytest.mark.parametrize("name", SLOW)
def test_a_task_that_hangs_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    hang = HANGS[name]
    with Project(tmp_path, hang.write(tmp_path)) as project:
        if hang.stops:
            project.until_step(5)
            child = project.child_pid(hang.stops)
            code, output = run_in(project.container(hang.stops), f"import os, signal; os.kill({child}, signal.SIGSTOP)")
            assert code == 0, output
        elif name == "lock":
            project.until_step(10)
            shown = trainer("stacks", "--target", "compose", str(tmp_path / "job.yaml"))
            assert (shown.returncode, "worker:1: " in shown.stdout) == (0, True), shown
        line = project.until_printed(re.escape(hang.names), 240)
    assert re.search(r"the job hangs: |no new step for |lost \(no ", line), line
