"""A task that hangs in a container is named with its line, without privileges. Each commit tries another reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compose.project import Project, run_in
from tests.tools.hangs import HANGS

pytestmark = pytest.mark.part("compose")

ONE_EACH = [pytest.param(name, marks=pytest.mark.slow(parts=len(HANGS), turn=i)) for i, name in enumerate(HANGS)]


@pytest.mark.parametrize("name", ONE_EACH)
def test_a_task_that_hangs_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    hang = HANGS[name]
    with Project(tmp_path, hang.write(tmp_path)) as project:
        if hang.stops:
            project.until_step(5)
            child = project.child_pid(hang.stops)
            code, output = run_in(project.container(hang.stops), f"import os, signal; os.kill({child}, signal.SIGSTOP)")
            assert code == 0, output
        line = project.until_printed(re.escape(hang.names), 240)
    assert re.search(r"the job hangs: |no new step for |lost \(no ", line), line
