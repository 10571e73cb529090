"""Complete, undisturbed jobs on real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.local import specs
from tests.local.specs import mirrored, parameter_server
from tests.tools.harness import Job
from trainer.model_dir import layout

ROOT = Path(__file__).parents[2]


def curve(model_dir: Path, name: str = "metrics") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (model_dir / f"{name}.jsonl").read_text().splitlines()]


def assert_one_cluster(result: dict[str, Any], tasks: set[str], **numbers: int) -> None:
    """Every task's start line describes the same cluster."""
    assert set(result["tasks"]) == tasks
    for name, line in result["tasks"].items():
        words = dict(word.split("=") for word in line.split())
        assert words["task"] == name
        assert {key: int(words[key]) for key in numbers} == numbers, line


def test_parameter_server_trains_digits_and_every_task_ends_by_itself(tmp_path: Path) -> None:
    with Job(tmp_path, parameter_server(steps=800, tasks={"evaluator": 1})) as job:
        assert job.wait() == 0, job.output
    result = job.result()
    assert result["status"] == "succeeded"
    assert (result["strategy"], result["steps"], result["generations"]) == ("parameter_server", 800, 1)
    assert result["test_accuracy"] >= 0.95
    assert result["examples_per_second"] > 0
    assert list(result["seconds_by_phase"]) == ["import", "rendezvous", "build", "trace", "first_step"]
    assert all(seconds >= 0 for seconds in result["seconds_by_phase"].values())
    assert result["seconds_to_first_step"] == pytest.approx(sum(result["seconds_by_phase"].values()), abs=0.01)
    assert result["seconds_saving"] > 0
    assert_one_cluster(
        result, {"chief:0", "worker:0", "worker:1", "ps:0"},
        workers=2, ps=1, replicas_in_sync=1, global_batch=32, per_replica=32, resume_step=0,
    )  # fmt: skip
    records = curve(job.model_dir)
    assert records[-1]["step"] == 800
    assert records[-1]["loss"] < records[0]["loss"]
    assert set(records[-1]["workers"]) == {"worker:0", "worker:1"}
    # Each of the 800 steps was applied once, by one of the two.
    assert sum(row["step"] for row in records[-1]["workers"].values()) == 800
    assert "batch accuracy worker:0=" in job.output
    scored = {record["step"]: record for record in curve(job.model_dir, "evaluation")}
    assert scored[800]["accuracy"] == pytest.approx(result["test_accuracy"])
    assert list((job.model_dir / "tensorboard" / "metrics").glob("events.out.tfevents.*"))
    assert {path.name for path in (job.model_dir / "export").iterdir()} == {"model.keras", "saved_model"}
    assert len(list((job.model_dir / "checkpoints").iterdir())) == 3
    assert "chief-0.log" in {path.name for path in layout.logs(job.model_dir).iterdir()}


@pytest.mark.slow
def test_compressed_gradients_change_the_bits_and_not_the_accuracy(tmp_path: Path) -> None:
    found = []
    for gradients in ("float32", "bfloat16"):
        (folder := tmp_path / gradients).mkdir()
        spec = mirrored(steps=300, communication={"gradients": gradients}, train={"log_steps": 50})
        with Job(folder, spec) as job:
            assert job.wait() == 0, job.output
        found.append((job.result()["test_accuracy"], [record["loss"] for record in curve(job.model_dir)]))
    (exact, losses), (compressed, other_losses) = found
    assert losses != other_losses
    assert losses == pytest.approx(other_losses, rel=0.05, abs=0.01)
    assert exact >= 0.95
    assert compressed == pytest.approx(exact, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("chief", [False, True], ids=["worker-0-leads", "explicit-chief"])
def test_multi_worker_mirrored_trains_digits(tmp_path: Path, chief: bool) -> None:
    spec = mirrored(steps=300, workers=1, tasks={"chief": 1}) if chief else mirrored(steps=300)
    with Job(tmp_path, spec) as job:
        assert job.wait() == 0, job.output
    result = job.result()
    assert (result["steps"], result["generations"]) == (300, 1)
    assert result["test_accuracy"] >= 0.93
    tasks = {"chief:0", "worker:0"} if chief else {"worker:0", "worker:1"}
    assert_one_cluster(result, tasks, workers=2, replicas_in_sync=2, global_batch=64, per_replica=32, resume_step=0)


OWN_FILES = """
from pathlib import Path
import keras
from trainer.workloads.digits import DATASET, model

class Writes(keras.callbacks.Callback):
    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def on_train_begin(self, logs=None):
        for name in ("history.json", "result.json", "state.json", "lease.json"):
            Path(self.folder, name).write_text("mine")

def callbacks(model_dir):
    return [Writes(model_dir)]
"""


def test_a_complete_job_is_reported_as_complete_and_not_trained_again(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_FILES)
    spec = mirrored(steps=20, workers=1, workload=str(tmp_path / "mine.py"))
    (tmp_path / "run/logs").mkdir(parents=True)
    earlier = ("spec.json", "journal.jsonl", ".lock", "logs/worker-0.log")
    for name in earlier:
        (tmp_path / "run" / name).write_text("mine")
    with Job(tmp_path, spec) as first:
        assert first.wait() == 0, first.output
    before = layout.result(first.model_dir).read_text()
    with Job(tmp_path, spec) as again:
        assert again.wait() == 0, again.output
    assert "already complete" in again.output
    with Job(tmp_path, spec, "train.seed=3", "train.learning_rate=0.01") as other:
        assert other.wait() == 2, other.output
    differences = "train.learning_rate: result 0.001, now 0.01; train.seed: result 0, now 3"
    assert f"it holds the result of another job: {differences}; undo the change, or choose an" in other.output
    assert layout.result(first.model_dir).read_text() == before
    written = ("history.json", "result.json", "state.json", "lease.json")
    assert {(first.model_dir / name).read_text() for name in (*earlier, *written)} == {"mine"}


@pytest.mark.slow
def test_a_job_goes_on_with_a_workload_that_was_mended_underway(tmp_path: Path) -> None:
    workload = tmp_path / "mine.py"
    workload.write_text("from trainer.workloads.digits import DATASET, model\ndef evaluate(model): return 1 / 0\n")
    spec = mirrored(steps=50, workers=1, workload=str(workload))
    with Job(tmp_path, spec) as first:
        assert first.wait() == 2, first.output
    workload.write_text(workload.read_text() + "# not mended yet\n")
    with Job(tmp_path, spec, "train.steps=60") as second:
        assert second.wait() == 2, second.output
    workload.write_text("from trainer.workloads.digits import DATASET, model\ndef evaluate(model): return {'x': 1}\n")
    spec["train"]["steps"] = 60
    with Job(tmp_path, spec) as again:
        assert again.wait() == 0, again.output
    assert "resume_step=60" in again.output
    assert again.result()["warnings"] == [f"the code of {workload} was changed after step {step}" for step in (50, 60)]
    workload.write_text("from trainer.workloads.digits import DATASET, model\ndef evaluate(model): return {'x': 2}\n")
    with Job(tmp_path, spec) as changed:
        assert changed.wait() == 2, changed.output
    assert "it holds the result of another job: workload_sha256: result " in changed.output


@pytest.mark.slow
def test_more_steps_go_on_from_the_checkpoint(tmp_path: Path) -> None:
    with Job(tmp_path, mirrored(steps=100, workers=1)) as first:
        assert first.wait() == 0, first.output
    with Job(tmp_path, mirrored(steps=150, workers=1)) as second:
        assert second.wait() == 0, second.output
    assert second.result()["steps"] == 150
    assert "resume_step=100" in second.output


@pytest.mark.slow
def test_a_changed_model_is_refused_with_the_difference(tmp_path: Path) -> None:
    with Job(tmp_path, mirrored(steps=20, workers=1)) as first:
        assert first.wait() == 0, first.output
    with Job(tmp_path, mirrored(steps=40, workers=1, train={"optimizer": "sgd"})) as second:
        assert second.wait() == 2, second.output
    assert "train.optimizer: result 'adam', now 'sgd'" in second.output


@pytest.mark.slow
def test_a_workload_file_of_ones_own_trains_under_a_parameter_server(tmp_path: Path) -> None:
    """Under multi_worker_mirrored: tests/local/test_readme.py."""
    spec = parameter_server(steps=200, workload=str(ROOT / "examples/languages.py"))
    with Job(tmp_path, spec, "train.learning_rate=5e-3") as job:
        assert job.wait() == 0, job.output
    assert job.result()["test_accuracy"] >= 0.85


@pytest.mark.slow
def test_epochs_become_steps(tmp_path: Path) -> None:
    spec = mirrored(workers=2)
    del spec["train"]["steps"]
    with Job(tmp_path, spec, "train.epochs=3") as job:
        assert job.wait() == 0, job.output
    # 1438 training digits, 64 a step: 22 steps an epoch.
    assert job.result()["steps"] == 66


@pytest.mark.slow
def test_a_secret_reaches_the_workload_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{specs.KEY}\n")
    with Job(tmp_path, specs.keyed(file="key")) as job:
        assert job.wait() == 0, job.output
    assert specs.KEY not in job.output
    files = [path for path in job.model_dir.rglob("*") if path.is_file()]
    assert layout.result(job.model_dir) in files
    assert not [path for path in files if specs.KEY.encode() in path.read_bytes()]
