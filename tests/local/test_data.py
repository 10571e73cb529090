"""A job of several modules that reads folders of data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local import specs
from tests.tools.harness import Job
from trainer.job.errors import Exit


@pytest.mark.slow
def test_all_code_and_data_are_there(tmp_path: Path) -> None:
    expected = specs.records(tmp_path / "records")
    data = {split: {"path": f"records/{split}"} for split in ("train", "test")}
    with Job(tmp_path, specs.shipped(specs.mirrored, data)) as job:
        assert job.wait() == Exit.OK, job.output
    result = job.result()
    assert result["test_sum"] == pytest.approx(expected, rel=1e-12)
    assert result["test_outputs"] == 3
    assert result["spec"]["data"]["test"]["path"] == str(tmp_path / "records/test")
    assert "trainer: warning" not in job.output


@pytest.mark.slow
def test_data_are_copied_once_for_all_tasks_of_a_node(tmp_path: Path) -> None:
    """Under a parameter server, whose workers and chief must find them at the same path."""
    expected = specs.records(tmp_path / "records")
    data = {split: {"path": f"records/{split}", "copy": "node"} for split in ("train", "test")}
    environ = {"TRAINER_CACHE_DIR": str(tmp_path / "cache")}
    for run in ("one", "two"):
        spec = specs.shipped(specs.parameter_server, data, model_dir=str(tmp_path / run))
        with Job(tmp_path, spec, environ=environ) as job:
            assert job.wait() == Exit.OK, job.output
        assert job.result()["test_sum"] == pytest.approx(expected, rel=1e-12)
        assert job.output.count(f"data.train is read from the copy {tmp_path}/cache/train-") == 3, "not by the ps"
        made = {path: path.stat().st_ctime_ns for path in (tmp_path / "cache").rglob("*.npy")}
        assert len(made) == 5
    assert {path: path.stat().st_ctime_ns for path in made} == made


@pytest.mark.slow
def test_data_that_are_not_those_of_their_sums_end_the_job(tmp_path: Path) -> None:
    specs.records(tmp_path / "records")
    (tmp_path / "records/test/SHA256SUMS").write_text(f"{'0' * 64}  0.npy\n")
    data = {"train": {"path": "records/train"}, "test": {"path": "records/test", "copy": "node"}}
    with Job(tmp_path, specs.shipped(specs.mirrored, data), environ={"TRAINER_CACHE_DIR": str(tmp_path / "c")}) as job:
        assert job.wait() == Exit.USER, job.output
    assert f"data.test: {tmp_path}/records/test/0.npy: SHA-256 is " in job.output
    assert "unexpected" not in job.output
