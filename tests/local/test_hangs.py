"""A task that hangs is named with its line before its job is ended. Each commit tries another reason."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.tools.hangs import HANGS
from tests.tools.harness import Job
from trainer.page import files

ONE_EACH = [pytest.param(name, marks=pytest.mark.slow(parts=len(HANGS), turn=i)) for i, name in enumerate(HANGS)]


@pytest.mark.parametrize("name", ONE_EACH)
def test_a_task_that_hangs_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    hang = HANGS[name]
    with Job(tmp_path, hang.write(tmp_path)) as job:
        if hang.stops:
            job.until_step(5)
            job.signal(hang.stops, number=signal.SIGSTOP)
        job.until_printed(hang.names, 240)
        line = next(line for line in job.lines if hang.names in line)
    assert re.search(r"the job hangs: |no new step for |lost \(no ", line), line
    if name == "pipe":
        assert "; the others wait for it in the all-reduce of step " in line


@pytest.mark.slow
def test_the_page_of_a_failed_job_shows_from_its_files_who_hung(tmp_path: Path) -> None:
    """It hangs before its first step, so that its only generation makes none."""
    hang = HANGS["pipe"]
    spec = hang.write(tmp_path)
    mine = tmp_path / "mine.py"
    mine.write_text(mine.read_text().replace("number == 60", "number == 0"))
    with Job(tmp_path, spec) as job:
        assert job.wait(240) == 14, job.output
    (found,) = json.loads(files.text(str(job.model_dir)))["status"]["hangs"]
    assert hang.names in found["text"]
    assert ["worker:1"] in [group["tasks"] for group in found["groups"]]
