"""What is collected of a job on this machine: from the files that its run has left."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from trainer.debug import archive
from trainer.debug.archive import Archive
from trainer.debug.evidence import Evidence, TaskEvidence
from trainer.debug.redaction import Redactor
from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.model_dir import layout
from trainer.targets.local import evidence

SPEC = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}})
FIRST = """2026-01-01T00:00:00.000Z local       | started by trainer 0.3.0
2026-01-01T00:00:01.000Z worker:0    | trainer: of the first run
2026-01-01T00:00:02.000Z local       | ended with exit code 2: j failed
"""
LAST = """2026-01-02T00:00:00.000Z local       | started by trainer 0.3.0
2026-01-02T00:00:01.000Z worker:1    | trainer: worker:1: x
2026-01-02T00:00:02.000Z local       | worker:0 ended, with exit code 0
2026-01-02T00:00:03.000Z local       | worker:1 ended, with exit code 18
2026-01-02T00:00:04.000Z local       | ended with exit code 18: j failed: worker:1 ended with exit code 18
"""


def collected(folder: Path, model_dir: Path, known: bool = True) -> tuple[Evidence, dict[str, str]]:
    """A job's facts, and the texts of its archive."""
    found: list[Evidence] = []

    def fill(into: Archive) -> None:
        found.append(evidence.collect(into, "j", str(model_dir), SPEC if known else None))

    archive.write(folder / "x.zip", "f", Redactor(), fill)
    with zipfile.ZipFile(folder / "x.zip") as files:
        return found[0], {name.removeprefix("f/"): files.read(name).decode() for name in files.namelist()}


def run_of(folder: Path, **logs: str) -> Path:
    run = folder / "run"
    layout.logs(run).mkdir(parents=True)
    (layout.make_own(run) / ".lock").touch()
    for name, text in logs.items():
        (layout.logs(run) / f"{name.replace('_', '.')}.log").write_text(text)
    return run


def test_the_end_of_the_last_run_is_taken_from_what_it_printed(tmp_path: Path) -> None:
    facts, files = collected(tmp_path, run_of(tmp_path, output=FIRST + LAST))
    assert (facts.phase, facts.code) == ("failed", Exit.PROGRAM)
    assert facts.message == "", "the line of worker:1 tells why"
    assert [log.text for log in facts.logs] == [LAST]
    assert facts.tasks == {
        "worker:0": TaskEvidence("ended", None, ended=1767312002.0),
        "worker:1": TaskEvidence("ended", 18, ended=1767312003.0),
    }
    assert FIRST in files["model_dir/logs/output.log.txt"], "the archive has all"


def test_a_run_that_began_in_the_earlier_file_is_read_from_there(tmp_path: Path) -> None:
    begin, _, end = LAST.partition("2026-01-02T00:00:02")
    run = run_of(tmp_path, output_1=FIRST + begin, output=f"2026-01-02T00:00:02{end}")
    facts, _ = collected(tmp_path, run)
    assert "".join(log.text for log in facts.logs) == LAST


def test_the_launcher_s_line_is_the_message_where_no_task_has_told_why(tmp_path: Path) -> None:
    killed = LAST.replace("trainer: worker:1: x", "step 5")
    facts, _ = collected(tmp_path, run_of(tmp_path, output=killed))
    assert facts.message == "j failed: worker:1 ended with exit code 18"


def test_a_folder_of_no_job_is_a_problem_of_a_spec_and_an_error_by_itself(tmp_path: Path) -> None:
    facts, files = collected(tmp_path, tmp_path / "none")
    assert facts.phase == ""
    assert facts.problems == [
        f"{tmp_path}/none: no job runs there on this machine; none was started; `trainer local` starts one"
    ]
    assert json.loads(files["machine.json"])["model_dir"]["path"] == str(tmp_path)
    with pytest.raises(UserError, match="no job runs there"):
        collected(tmp_path, tmp_path / "none", known=False)


def test_a_file_in_place_of_the_folder_is_why_no_job_could_begin(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    facts, _ = collected(tmp_path, tmp_path / "file" / "run")
    path = f"{tmp_path}/file"
    assert facts.problems[0] == f"model_dir: {path}/run: cannot be written: {path} is no folder"
    assert facts.code == Exit.USER


def test_tasks_that_another_program_has_started_may_have_failed_without_a_chief(tmp_path: Path) -> None:
    run = tmp_path / "run"
    layout.logs(run).mkdir(parents=True)
    (layout.logs(run) / "worker-1.out").write_text("trainer: worker:1 has had no reply from its chief\n")
    facts, _ = collected(tmp_path, run)
    assert (facts.phase, facts.problems) == ("failed", ())
    assert [(log.task, log.path) for log in facts.logs] == [("worker:1", "model_dir/logs/worker-1.out.txt")]


def test_the_spec_of_a_job_that_succeeded_is_known_from_its_result(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    result = {"status": "succeeded", "steps": 5, "spec": {**SPEC.model_dump(mode="json"), "env": {"K": "0a1b2c3d4e"}}}
    (layout.make_own(run) / "result.json").write_text(json.dumps(result))
    (layout.logs(run) / "worker-0.log").write_text("a line with 0a1b2c3d4e\n")
    _, files = collected(tmp_path, run, known=False)
    assert files["model_dir/logs/worker-0.log.txt"] == "a line with [hidden: K]\n"
