"""A job in containers that has no page. One that has is in test_tour.py."""

from __future__ import annotations

from pathlib import Path

from tests.compose.project import Project, trainer
from tests.local import specs
from trainer.job.errors import Exit
from trainer.targets.page import NONE


def test_a_job_without_a_page_says_so(tmp_path: Path) -> None:
    spec = {**specs.mirrored(steps=30_000, workers=1, workload=specs.PACED), "name": "pageless", "page": "none"}
    with Project(tmp_path, spec) as project:
        project.until("it answers", lambda status: status)
        ended = trainer("ui", str(tmp_path / "job.yaml"), "--target", "compose")
        assert (ended.returncode, ended.stdout, ended.stderr) == (Exit.USER, "", f"trainer: pageless: {NONE}\n")
