"""trainer.keras.Report in one program, for Keras 3, tf_keras and the Keras of TensorFlow 2.15."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.documents import ROOT
from tests.unit import reports
from trainer.job.environment import REPORTS

TF_KERAS, TF215 = ROOT / ".venv-peers" / "tf_keras", ROOT / ".venv-tf215" / "bin" / "python"

PROGRAM = """
import importlib, json, sys
import numpy as np
import tensorflow as tf
sys.path.insert(0, sys.argv[1])
keras = importlib.import_module(sys.argv[2])
import trainer.keras
cpu, half = tf.config.list_physical_devices("CPU")[0], tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(cpu, [half, half])
def fit(name, model, *callbacks, batch_size=None, **settings):
    trainer.report(fit=name)
    trainer.reporting.flush()
    report = trainer.keras.Report(batch_size)
    history = model.fit(x, y, verbose=0, callbacks=[*callbacks, report], **settings)
    final = {name: values[-1] for name, values in history.history.items()}
    trainer.report(over=name, **{f"keras_{key}": value for key, value in final.items()})
    trainer.reporting.flush()
x = np.random.default_rng(0).random((320, 8), dtype=np.float32)
y = (x.sum(1) > 4).astype(np.float32)
def compiled(**settings):
    model = keras.Sequential([keras.layers.InputLayer((8,)), keras.layers.Dense(1, activation="sigmoid")])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"], **settings)
    return model
class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations.numpy() == 15:
            raise RuntimeError("lost")
model = compiled()
fit("new", model, epochs=3, validation_data=(x, y), batch_size=32)
fit("continued", model, epochs=5, initial_epoch=3)
fit("several", compiled(steps_per_execution=4), epochs=6)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = compiled()
first = model.evaluate(x[:32], y[:32], verbose=0, return_dict=True)
trainer.report(**{f"first_{name}": value for name, value in first.items()})
fit("mirrored", model, epochs=2, shuffle=False)
if keras.__version__.startswith("3"):
    trainer.report(keras3=True)
backup = lambda: keras.callbacks.BackupAndRestore(sys.argv[3], save_freq=5)
try:
    fit("lost", compiled(), backup(), Fails(), epochs=7)
except RuntimeError:
    trainer.reporting.flush()
    fit("restored", compiled(), backup(), epochs=7)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("python", "name", "path"),
    [
        pytest.param(sys.executable, "keras", "", id="keras-3"),
        pytest.param(
            sys.executable, "tf_keras", str(TF_KERAS), id="tf_keras",
            marks=pytest.mark.skipif(not TF_KERAS.exists(), reason="make programs-setup installs tf_keras"),
        ),
        pytest.param(
            str(TF215), "keras", "", id="keras-2.15",
            marks=pytest.mark.skipif(not TF215.exists(), reason="make programs-setup installs TensorFlow 2.15"),
        ),
    ],
)  # fmt: skip
def test_every_keras_reports_alike(tmp_path: Path, python: str, name: str, path: str) -> None:
    environ = {**os.environ, "PYTHONPATH": path}
    environ.pop("TF_USE_LEGACY_KERAS", None)
    with reports.reader(tmp_path / "reports.sock") as reader, reports.collecting(reader) as found:
        environ[REPORTS] = str(reader.path)
        command = [python, "-c", PROGRAM, str(ROOT), name, str(tmp_path / "backup")]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    fits: dict[str, list[dict[str, Any]]] = {}
    for i, figures in enumerate(found):
        fits.setdefault(reports.merged(found[: i + 1])["fit"], []).append(figures)
    # Of several replicas, Keras 2 may give sums within an epoch.
    mirrored = next(each for each in fits["mirrored"] if "step" in each)
    firsts = {name: reports.merged(found)[f"first_{name}"] for name in ("loss", "accuracy")}
    expected = {"step": 1, "total": 20, **(firsts if "keras3" in reports.merged(found) else {})}
    assert mirrored == pytest.approx(expected, rel=1e-4)
    # Of a backup within an epoch, Keras 3 repeats the epoch.
    restored_total = 75 if "keras3" in reports.merged(found) else 70
    assert [each["total"] for each in map(reports.merged, fits.values())] == [30, 50, 60, 20, 70, restored_total]
    lost = fits.pop("lost")
    assert reports.merged(lost)["step"] <= 15
    for each in fits.values():
        steps = [figures["step"] for figures in each if "step" in figures]
        assert steps == sorted(steps)
        last = reports.merged(each)
        assert last["step"] == last["total"]
        finals = {figure: value for figure, value in last.items() if f"keras_{figure}" in last}
        assert finals == {figure: last[f"keras_{figure}"] for figure in finals}
        assert finals.keys() >= {"loss", "accuracy"}
    assert reports.merged(fits["new"]).keys() >= {"val_loss", "val_accuracy"}
    first = {fit: min(figures["step"] for figures in each if "step" in figures) for fit, each in fits.items()}
    assert first["new"] >= 1
    assert first["continued"] > 30
    assert first["several"] >= 4
    assert first["restored"] > 15
