"""Commands that read and write files."""

import shutil
from pathlib import Path

import pytest

from trainer.api import started
from trainer.cli.main import main

OLD = Path(__file__).parents[2] / "compatibility" / "0.2.0" / "mirrored"


def test_result_of_a_spec_is_that_of_the_job_that_was_started_last_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (spec := tmp_path / "job.yaml").write_text("{name: j, strategy: multi_worker_mirrored, tasks: {worker: 2}}")
    shutil.copytree(OLD, tmp_path / "runs" / "last")
    started.note(str(spec), "local", "j", ["model_dir=runs/last"])
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    assert main(["result", str(spec)]) == 0
    assert f"{tmp_path}/runs/last/result.json" in capsys.readouterr().out
    assert main(["result", str(spec), "--set", "model_dir=other"]) == 2
    assert "model_dir: other: it has no result.json" in capsys.readouterr().err
