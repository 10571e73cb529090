"""Jobs that begin with the weights of a trained model, and their exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.local import specs
from tests.tools.harness import Job
from trainer.workloads import datasets

SUBCLASSED = str(Path(__file__).parent / "workloads/subclassed.py")


def base(folder: Path) -> tuple[Path, Any]:
    """A trained backbone with another head, and its kernel."""
    given = keras.Input((8, 8))
    stem = keras.layers.Dense(16, name="stem")
    keras.Model(given, keras.layers.Dense(7, name="head")(stem(keras.layers.Flatten()(given)))).save_weights(
        folder / "base.weights.h5"
    )
    return folder / "base.weights.h5", stem.kernel.value.numpy()


# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", specs.EITHER)
def test_a_frozen_layer_keeps_the_values_of_init_from_through_a_kill(tmp_path: Path, strategy: Any) -> None:
    path, kernel = base(tmp_path)
    settings = {"workload": SUBCLASSED, "init_from": path.name, "check_exports": True}
    spec = strategy(steps=300, train={"checkpoint_steps": 50, "log_steps": 50}, **settings)
    with Job(tmp_path, spec) as job:
        job.until_step(60)
        job.try_signal("chief:0" if strategy is specs.parameter_server else "worker:0", "child_pid")
        assert job.wait(180) == 0, job.output
    result = job.result()
    assert result["init_from"].endswith(
        "base.weights.h5: 2 of 4 variables; of another shape or type: head/0 (there (16, 7), here (16, 10)), "
        "head/1 (there (7,), here (10,))"
    )
    assert job.output.count("2 of 4 variables") == 1
    assert result["exports"] == {
        "model.keras": "equal, only with custom_objects for Net: put @keras.saving.register_keras_serializable() "
        "before it in the workload file",
        "saved_model": "equal",
    }
    newest = max((job.model_dir / "checkpoints").iterdir())
    described = json.loads((newest / "meta.json").read_text())["variables"]
    (key,) = [key for key, v in described.items() if key.startswith("model.") and v["path"].endswith("stem/kernel")]
    with np.load(newest / "variables.npz") as values:
        np.testing.assert_array_equal(values[key], kernel)
    # With other weights it is another job.
    base(tmp_path)
    with Job(tmp_path, {**spec, "train": {**spec["train"], "steps": 400}}) as job:
        assert job.wait() == 2
    assert "init_from_sha256: " in job.output


def digits(part: slice) -> tuple[Any, Any]:
    arrays = datasets.load("digits")
    return arrays["x_train"][part], arrays["y_train"][part]


def loss_of(path: Path, x: Any, y: Any) -> float:
    model = keras.models.load_model(path)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return float(model.evaluate(x, y, verbose=0))


@pytest.mark.slow
def test_the_best_checkpoint_survives_a_kill_and_is_exported(tmp_path: Path) -> None:
    # A rate so high that the loss jumps.
    train = {"checkpoint_steps": 20, "validation_split": 0.2, "learning_rate": 0.3, "keep_checkpoints": 1}
    spec = specs.mirrored(
        steps=200, workload=specs.PACED, train=train, keep_best={"metric": "val_loss"}, check_exports=True
    )
    with Job(tmp_path, spec) as job:
        job.until_step(70)
        job.signal("worker:0")
        assert job.wait(180) == 0, job.output
    result = job.result()
    records = [json.loads(line) for line in (job.model_dir / "validation.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == list(range(20, 201, 20))
    best = min(records, key=lambda record: record["val_loss"])
    assert result["best"] == {"metric": "val_loss", "step": best["step"], "value": best["val_loss"]}
    part = int(len(datasets.load("digits")["x_train"]) * 0.8)
    found = loss_of(job.model_dir / "export/best.keras", *digits(slice(part, None)))
    assert found == pytest.approx(best["val_loss"], rel=1e-4)
    assert result["exports"] == {"model.keras": "equal", "saved_model": "equal", "best.keras": "equal"}


@pytest.mark.slow
def test_an_evaluator_keeps_the_best_of_what_it_scores(tmp_path: Path) -> None:
    train = {"checkpoint_steps": 20, "learning_rate": 0.1}
    keep = {"metric": "accuracy"}
    spec = specs.parameter_server(steps=300, workload=specs.PACED, train=train, tasks={"evaluator": 1}, keep_best=keep)
    with Job(tmp_path, spec) as job:
        assert job.wait(180) == 0, job.output
    records = [json.loads(line) for line in (job.model_dir / "evaluation.jsonl").read_text().splitlines()]
    best = max(records, key=lambda record: record["accuracy"])
    found = job.result()["best"]
    assert (found["metric"], found["value"]) == ("accuracy", best["accuracy"])
    (step,) = [int(path.name.removeprefix("step-")) for path in (job.model_dir / "best/checkpoints").iterdir()]
    assert step == found["step"] in {r["step"] for r in records if r["accuracy"] == best["accuracy"]}
    arrays = datasets.load("digits")
    model = keras.models.load_model(job.model_dir / "export/best.keras")
    correct = model.predict(arrays["x_test"], verbose=0).argmax(-1) == arrays["y_test"]
    assert correct.mean() == pytest.approx(best["accuracy"], abs=1e-6)
