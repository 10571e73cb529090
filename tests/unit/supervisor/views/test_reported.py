"""The curve of a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer.job.errors import Exit, TrainerError
from trainer.model_dir import layout
from trainer.protocol.status import End, JobStatus
from trainer.supervisor.views.reported import Reported
from trainer.supervisor.views.snapshot import Snapshot


def held() -> None:
    """This chief has the lease."""


def snapshot(time: float, step: int | None, seconds: float = 0.0, end: End | None = None) -> Snapshot:
    job = JobStatus(
        job="j", task="worker:0", strategy="one_device", phase="running", generation=1, restarts=0, standby=False,
        step=step, figures={"loss": 0.5, "note": "x"}, seconds=seconds, end=end, last_checkpoint=None,
        waiting_for=None, events=[], tasks={},
    )  # fmt: skip
    return Snapshot(time, job, {}, time)


def steps(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in layout.reported(folder).read_text().splitlines()]


def test_each_new_step_is_a_line(tmp_path: Path) -> None:
    curve = Reported(str(tmp_path), held)
    for time, step in enumerate((None, 1, 1, 2)):
        curve.observe(snapshot(time, step), [])
    rows = [json.loads(line) for line in layout.reported(tmp_path).read_text().splitlines()]
    assert rows == [{"step": 1, "loss": 0.5, "note": "x", "time": 1}, {"step": 2, "loss": 0.5, "note": "x", "time": 3}]


def test_a_job_of_a_month_has_few_lines_and_its_last_one(tmp_path: Path) -> None:
    curve = Reported(str(tmp_path), held)
    month = 30 * 86_400
    for second in range(0, month, 10):
        curve.observe(snapshot(second, second, second), [])
    curve.observe(snapshot(month + 1, month + 1, month + 1, End(0, "")), [])
    found = steps(tmp_path)
    assert 5_000 < len(found) < 13_000
    assert found[-1] == month + 1


def test_a_chief_that_has_lost_its_place_writes_nothing(tmp_path: Path) -> None:
    def lost() -> None:
        raise TrainerError("another one has it", Exit.REPLACED)

    Reported(str(tmp_path), lost).observe(snapshot(1, 1), [])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (layout.make_own(tmp_path) / "reported.jsonl").mkdir()
    curve = Reported(str(tmp_path), held)
    for step in (1, 2):
        curve.observe(snapshot(step, step), [])
    assert capsys.readouterr().out.count("reported.jsonl: cannot be written: Is a directory") == 1
