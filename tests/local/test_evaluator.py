"""The final evaluation: the chief's, and that of an evaluator beside a training that succeeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.local.specs import PACED, mirrored
from tests.tools.harness import Job
from trainer.job.errors import Exit
from trainer.model_dir import layout

pytestmark = pytest.mark.slow

EVALUATOR = {"worker": 1, "evaluator": 1}
UNSCORED = str(Path(__file__).parent / "workloads/unscored.py")


def scores(job: Job) -> dict[int, dict[str, Any]]:
    path = job.model_dir / "evaluation.jsonl"
    return {row["step"]: row for row in map(json.loads, path.read_text().splitlines() if path.exists() else [])}


def test_checkpoints_that_are_pruned_while_the_evaluator_reads_them_do_no_harm(tmp_path: Path) -> None:
    train = {"checkpoint_steps": 2, "keep_checkpoints": 1, "log_steps": 1000}
    with Job(tmp_path, mirrored(steps=2000, tasks=EVALUATOR, workload=PACED, train=train)) as job:
        assert job.wait() == 0, job.output
    assert list(scores(job))[-1] == 2000
    assert len(scores(job)) > 1, "some were scored beside the training"
    assert job.result()["warnings"] == []
    assert "child lost" not in job.output


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raises", f"workload: {UNSCORED}:18: ValueError: no such figure"),
        ("dies", "killed by SIGKILL"),
        ("sleeps", "it took longer than 25 s (deadlines.evaluation)"),
    ],
    ids=["raises", "dies", "sleeps"],
)
def test_a_last_checkpoint_that_is_not_scored_is_a_warning_and_exporters_run(
    tmp_path: Path, how: str, reason: str
) -> None:
    spec = mirrored(
        tasks=EVALUATOR, api="train_and_evaluate", workload=UNSCORED, settings={"how": how}, max_restarts=1,
        deadlines={"evaluation": 25},
    )  # fmt: skip
    with Job(tmp_path, spec) as job:
        assert job.wait() == 0, job.output
    result = job.result()
    assert (result["status"], result["steps"]) == ("succeeded", 400)
    (warning,) = result["warnings"]
    assert warning.startswith(f"evaluator:0 did not score the last checkpoint, of step 400: {reason}")
    assert f"evaluator:0 | trainer: {warning}; the result of the training is valid" in job.output
    assert "local | evaluator:0 ended with exit code 17; the training" in job.output
    assert any(line.split() == ["warning", *warning.split()] for line in job.lines), "in the summary"
    assert scores(job) == {}
    exported = job.model_dir / "exporters"
    assert [path.name for path in exported.iterdir()] == ["final"], "the best one cannot be known"
    assert (exported / "final" / "model.keras").exists()


ENDLESS = """
import itertools, os
import numpy as np, tensorflow as tf
from trainer.workloads.digits import model

def data(shard):
    image = np.zeros((8, 8), np.uint8)
    times = itertools.count() if shard.split == "test" and "ENDLESS" in os.environ else range(90)
    signature = (tf.TensorSpec([8, 8], tf.uint8), tf.TensorSpec([], tf.int64))
    return tf.data.Dataset.from_generator(lambda: ((image, i % 10) for i in times), output_signature=signature)
"""


def test_a_final_evaluation_that_never_ends_keeps_the_checkpoint_and_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    spec = mirrored(steps=30, workload=str(tmp_path / "endless.py"), deadlines={"evaluation": 4})
    with Job(tmp_path, spec, environ={"ENDLESS": "1"}) as job:
        assert job.wait() == Exit.EVALUATION, job.output
    assert "worker:0: the final evaluation and export took longer than 4 s (deadlines.evaluation); the trained" in (
        job.output
    )
    assert not layout.result(job.model_dir).exists()
    with Job(tmp_path, spec) as job:
        assert job.wait() == Exit.OK, job.output
    assert "resume_step=30" in job.result()["tasks"]["worker:0"]
    assert job.result()["test_loss"] > 0
