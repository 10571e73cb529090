"""The training APIs on real processes, beyond the support table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.local.specs import EITHER, mirrored, parameter_server
from tests.tools.harness import Job

# train_and_evaluate. ----------------------------------------------------------------------------------

ESTIMATOR = """
import pathlib
import tensorflow as tf
from trainer.workloads.estimator import *

def note(text):
    with open(FOLDER + "/notes", "a") as file:
        file.write(text + "\\n")

class Notes(Hook):
    def begin(self):
        note("begin")
    def end(self, step):
        note(f"end {step}")

def input_fn(context):
    note(f"input {context.input_pipeline_id} of {context.num_input_pipelines} for {context.num_replicas_in_sync}")
    return tf.data.Dataset.from_tensors(({"x": [1.0]}, [1.0])).repeat(1000).batch(context.batch_size)

def train_and_evaluate():
    evaluation = EvalSpec(input_fn, steps=3, throttle_secs=0, exporters=[FinalExporter("final")])
    return LinearRegressor(["x"]), TrainSpec(input_fn, max_steps=150, hooks=[Notes()]), evaluation
"""


@pytest.mark.parametrize("make", EITHER)
def test_the_guides_regressor_learns_to_predict_1_and_each_task_takes_part(tmp_path: Path, make: Any) -> None:
    (tmp_path / "own.py").write_text(f"FOLDER = {str(tmp_path)!r}\n" + ESTIMATOR)
    train = {"batch_size": 10, "optimizer": "sgd", "learning_rate": 0.1, "steps": None, "checkpoint_steps": 50}
    spec = make(api="train_and_evaluate", train=train, tasks={"evaluator": 1})
    with Job(tmp_path, {**spec, "workload": "own.py"}) as job:
        assert job.wait() == 0, job.output
    result = job.result()
    assert result["steps"] == 150, "max_steps of the TrainSpec"
    assert result["test_prediction/mean"] == pytest.approx(1.0, abs=1e-3)
    assert result["test_loss"] < 1e-5
    notes = (tmp_path / "notes").read_text().splitlines()
    workers = 2 if make is mirrored else 1  # hooks of parameter_server run on its chief
    assert (notes.count("begin"), notes.count("end 150")) == (workers, workers)
    if make is mirrored:
        assert [line for line in sorted(notes) if "of 2" in line] == ["input 0 of 2 for 2", "input 1 of 2 for 2"]
    evaluated = [json.loads(line) for line in (job.model_dir / "evaluation.jsonl").read_text().splitlines()]
    assert evaluated[-1]["step"] == 150
    assert evaluated[-1]["prediction/mean"] == pytest.approx(result["test_prediction/mean"])
    model = keras.models.load_model(job.model_dir / "exporters" / "final" / "model.keras")
    assert float(model({"x": np.array([[1.0]])})[0, 0]) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
def test_batches_of_another_size_than_the_specs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(f"FOLDER = {str(tmp_path)!r}\n" + ESTIMATOR.replace("context.batch_size", "7"))
    with Job(tmp_path, {**parameter_server(api="train_and_evaluate", workers=1), "workload": "own.py"}) as job:
        assert job.wait() == 2, job.output
    assert "input_fn(): gives batches of 7, the spec asks for 32: batch(context.batch_size)" in job.output
