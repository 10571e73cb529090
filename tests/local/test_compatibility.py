"""Jobs of earlier versions that were stopped or killed are continued by this one: tests/compatibility."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.tools.harness import Job, saved_values
from trainer.model_dir import checkpoint, layout

FILES = Path(__file__).parents[1] / "compatibility"
VERSIONS = sorted(path.name for path in FILES.glob("[0-9]*"))


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> Path:
    path = FILES / str(request.param)
    assert isinstance(path, Path)
    return path


def run_again(version: Path, name: str, folder: Path) -> Job:
    """Runs the command of a job of that version again, to its end."""
    model_dir = shutil.copytree(version / name, folder / name)
    spec = yaml.safe_load((model_dir / "job.yaml").read_text())
    spec |= {"model_dir": str(model_dir), "workload": str(version / "model.py")}
    with Job(folder, spec, environ={"COMPATIBILITY_OUTPUT": str(folder)}) as job:
        assert job.wait() == 0, job.output
    assert layout.own(model_dir) == Path(model_dir), "its files stay where they are"
    assert not (model_dir / layout.OWN).exists()
    return job


def kept_weights(model_dir: Path, step: int) -> list[Any]:
    """The weights of the model in a checkpoint, in the model's order."""
    found = checkpoint.verify(checkpoint.folder(model_dir) / checkpoint.name(step))
    assert found is not None
    values = saved_values(model_dir, step)
    paths = {each["path"]: values[name] for name, each in found.meta["variables"].items()}
    return [paths[f"sequential/{layer}/{each}"] for layer in ("dense", "dense_1") for each in ("kernel", "bias")]


def callback_state(model_dir: Path, step: int, kind: str) -> dict[str, Any]:
    """The attributes of one of Keras' callbacks in a checkpoint."""
    path = checkpoint.folder(model_dir) / checkpoint.name(step) / "meta.json"
    (state,) = (each["state"] for each in json.loads(path.read_text())["epochs"]["callbacks"] if each["kind"] == kind)
    return dict(state["dict"])


def assert_begins_where_it_ended(job: Job, kept: Path) -> tuple[int, dict[str, Any]]:
    """Training begins with the weights of the newest checkpoint of that version, bit for bit.

    Returns:
        Its step, and what the callbacks began with.
    """
    step = checkpoint.steps(kept)[-1]
    assert f"resume_step={step} " in job.output
    assert "training continues with the changed code" not in job.output
    begin = json.loads((job.model_dir.parent / "begin.json").read_text())
    for here, there in zip(begin["weights"], kept_weights(kept, step), strict=True):
        assert np.array_equal(np.asarray(here, there.dtype), there)
    return step, begin


def test_a_job_that_has_succeeded_is_not_trained_again(version: Path, tmp_path: Path) -> None:
    job = run_again(version, "mirrored", tmp_path)
    assert "already complete" in job.output
    assert not (tmp_path / "begin.json").exists()


@pytest.mark.slow
def test_a_stopped_job_ends_as_one_that_was_not(version: Path, tmp_path: Path) -> None:
    job = run_again(version, "stopped", tmp_path)
    step, begin = assert_begins_where_it_ended(job, version / "stopped")
    assert begin["epochs"] == step // 10
    assert begin["best"] == callback_state(version / "stopped", step, "EarlyStopping")["best"]
    result = job.result()
    assert (result["steps"], result["generations"]) == (40, 2)
    there = json.loads((version / "mirrored" / "result.json").read_text())
    assert result["test_accuracy"] == pytest.approx(there["test_accuracy"], abs=0.01)
    for mine, whole in zip(kept_weights(job.model_dir, 40), kept_weights(version / "mirrored", 40), strict=True):
        np.testing.assert_allclose(mine, whole, atol=1e-4)  # another CPU adds up in another order
    steps = [json.loads(line)["step"] for line in (job.model_dir / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted({*range(5, 41, 5), step})


@pytest.mark.slow
def test_a_killed_job_goes_on_from_its_checkpoint(version: Path, tmp_path: Path) -> None:
    job = run_again(version, "killed", tmp_path)
    assert_begins_where_it_ended(job, version / "killed")
    result = job.result()
    assert (result["steps"], result["generations"]) == (40, 2)
    before = json.loads((version / "killed" / "state.json").read_text())
    assert [event["text"] for event in result["events"]][: len(before["events"])] == [
        event["text"] for event in before["events"]
    ]
    numbers = [
        json.loads((folder / "lease.json").read_text())["number"] for folder in (version / "killed", job.model_dir)
    ]
    assert numbers[0] < numbers[1]
