"""trainer.keras.Report in fits of Keras, with a real socket; tests/local/test_keras_report.py has other versions."""

from __future__ import annotations

import copy
from argparse import Namespace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainer
import trainer.keras
from tests.unit import reports
from trainer import reporting
from trainer.job.environment import REPORTS

X = np.random.default_rng(0).random((320, 8), dtype=np.float32)
Y = (X.sum(1) > 4).astype(np.float32)


def compiled(optimizer: Any = "adam", metrics: Any = ("accuracy",), **settings: Any) -> Any:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, activation="sigmoid")])
    model.compile(optimizer, "binary_crossentropy", metrics=list(metrics), jit_compile=False, **settings)
    return model


def fit(reader: reports.Reader, model: Any, *callbacks: Any, **settings: Any) -> tuple[list[dict[str, Any]], Any]:
    """Ten batches an epoch; returns what was reported, and the history."""
    data = {"shuffle": False} if "x" in settings else {"x": X, "y": Y, "batch_size": 32}
    with reports.collecting(reader) as found:
        history = model.fit(**data, **settings, verbose=0, callbacks=[*callbacks, trainer.keras.Report()])
    steps = [each["step"] for each in found]
    assert steps == sorted(steps)
    return found, history.history


def test_a_fit_reports_its_steps_and_its_last_figures(reader: reports.Reader) -> None:
    model = compiled()
    found, history = fit(reader, model, epochs=3, validation_data=(X[:64], Y[:64]))
    assert found[0].keys() == {"step", "total", "loss", "accuracy"}
    assert found[0]["step"] == 1
    assert {each["total"] for each in found} == {30}
    figures = reports.merged(found)
    figures.pop("validation_batch", None)  # if the validation took so long that it was reported
    assert figures == {"step": 30, "total": 30, **{name: values[-1] for name, values in history.items()}}
    assert model.optimizer.iterations.numpy() == 30


def test_the_steps_of_a_later_fit_continue(reader: reports.Reader) -> None:
    model = compiled()
    fit(reader, model, epochs=3)
    found, _ = fit(reader, model, epochs=5, initial_epoch=3)
    assert found[0]["step"] > 30
    assert reports.merged(found).items() >= {"step": 50, "total": 50}.items()
    found, _ = fit(reader, model, epochs=2)
    assert found[0]["step"] > 50
    assert reports.merged(found).items() >= {"step": 70, "total": 70}.items()


def test_steps_count_from_the_first_epoch_if_the_optimizer_is_new(reader: reports.Reader) -> None:
    """The weights alone were loaded."""
    model = compiled()
    found, _ = fit(reader, model, epochs=5, initial_epoch=3)
    assert found[0]["step"] == 31
    assert reports.merged(found).items() >= {"step": 50, "total": 50}.items()
    assert model.optimizer.iterations.numpy() == 20


class Fails(keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        if epoch == 2:
            raise RuntimeError("lost")


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
def test_steps_continue_after_backup_and_restore(reader: reports.Reader, tmp_path: Path) -> None:
    def backup() -> Any:
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    with pytest.raises(RuntimeError, match="lost"):
        fit(reader, compiled(), backup(), Fails(), epochs=4)
    reporting.flush()
    assert reader.latest().get("step", 20) == 20
    found, _ = fit(reader, compiled(), backup(), epochs=4)
    assert found[0]["step"] == 21
    assert reports.merged(found).items() >= {"step": 40, "total": 40}.items()


def test_a_step_is_a_batch_even_if_gradients_accumulate(reader: reports.Reader) -> None:
    model = compiled(keras.optimizers.SGD(gradient_accumulation_steps=2))
    found, _ = fit(reader, model, epochs=2)
    assert reports.merged(found).items() >= {"step": 20, "total": 20}.items()
    found, _ = fit(reader, model, epochs=3, initial_epoch=2)
    assert found[0]["step"] > 20
    assert reports.merged(found).items() >= {"step": 30, "total": 30}.items()


def batches(count: int) -> Any:
    """A Dataset of unknown size."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(32).take(count).filter(lambda x, y: True)


@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")  # at the end of the first epoch, by Keras
def test_the_total_is_known_after_an_epoch_if_the_size_is_not(reader: reports.Reader) -> None:
    found, _ = fit(reader, compiled(), x=batches(7), epochs=3)
    assert found[0].keys() == {"step", "loss", "accuracy"}
    assert reports.merged(found).items() >= {"step": 21, "total": 21}.items()


def test_steps_per_execution_does_not_divide_the_epoch(reader: reports.Reader) -> None:
    model = compiled(steps_per_execution=4)
    found, _ = fit(reader, model, epochs=2)
    assert found[0]["step"] == 4
    assert reports.merged(found).items() >= {"step": 20, "total": 20}.items()
    assert model.optimizer.iterations.numpy() == 20


class Stops(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.model.stop_training = self.model.optimizer.iterations.numpy() == 14


def test_an_early_stop_reports_its_last_figures(reader: reports.Reader) -> None:
    found, history = fit(reader, compiled(), Stops(), epochs=9, validation_data=(X[:64], Y[:64]))
    assert reports.merged(found).items() >= {"step": 14, "total": 90, "val_loss": history["val_loss"][1]}.items()


def test_names_of_metrics_become_identifiers(reader: reports.Reader) -> None:
    names = ["top-5 accuracy", "1st", "step", "total", "m\N{LATIN SMALL LETTER U WITH DIAERESIS}"]
    metrics = [keras.metrics.BinaryAccuracy(name=name) for name in names]
    found, history = fit(reader, compiled(metrics=metrics), epochs=1)
    [accuracy] = history["1st"]
    assert reports.merged(found) == {
        "step": 10,
        "total": 10,
        "loss": history["loss"][0],
        **dict.fromkeys(["top_5_accuracy", "_1st", "step_", "total_", names[-1]], accuracy),
    }


def test_a_figure_with_several_values_is_left_out() -> None:
    logs = {"loss": tf.constant(0.5), "confusion": tf.ones((2, 2)), "text": np.array(["a", "b"]), "none": None}
    assert trainer.keras._figures(logs) == {"loss": 0.5}
    assert trainer.keras._figures(None) == {}


def test_the_throughput_is_that_of_the_last_interval() -> None:
    report = trainer.keras.Report(batch_size=32)
    times_and_steps = [(10.0, 1), (10.05, 2), (12.0, 21), (12.0, 21), (13.0, 21), (14.0, 22)]
    rates = [report._rate(now, step) for now, step in times_and_steps]
    assert rates == [None, None, 20 * 32 / 2, None, None, 1 * 32 / 2]


def test_a_worker_reports_its_share_of_the_throughput(reader: reports.Reader) -> None:
    report = trainer.keras.Report(batch_size=32)
    # As MultiWorkerMirroredStrategy on one of two workers that have two GPUs each.
    own_devices = Namespace(worker_devices=("GPU:0", "GPU:1"))
    report.set_model(Namespace(distribute_strategy=Namespace(num_replicas_in_sync=4, extended=own_devices)))
    report._rate(10.0, 1)
    assert report._rate(12.0, 21) == 160


def test_the_throughput_needs_a_batch_size(reader: reports.Reader) -> None:
    def rate(report: trainer.keras.Report, model: Any) -> float | None:
        report.set_model(model)
        report._rate(10.0, 1)
        return report._rate(12.0, 21)

    fixed = keras.Sequential([keras.Input((8,), batch_size=64), keras.layers.Dense(1)])
    assert rate(trainer.keras.Report(), compiled()) is None
    assert rate(trainer.keras.Report(), keras.Sequential([keras.layers.Dense(1)])) is None
    assert rate(trainer.keras.Report(), fixed) == 640
    assert rate(trainer.keras.Report(batch_size=32), fixed) == 320
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        assert rate(trainer.keras.Report(), keras.models.clone_model(fixed)) == 640


def test_a_validation_does_not_count_for_the_throughput() -> None:
    report = trainer.keras.Report(batch_size=32)
    report._rate(10.0, 1)
    report._test_began -= 1000
    before = report._test_began
    report.on_test_begin()
    began, report._test_began = report._test_began, before
    report.on_test_end()
    assert report._since is not None
    assert report._since[0] >= 10 + began - before
    assert report._since[1] == 1


def begun(model: Any, report: trainer.keras.Report) -> trainer.keras.Report:
    """At the first batch of a fit."""
    report.set_params({"epochs": 1, "steps": 1000})
    report.set_model(model)
    report.on_train_begin()
    report.on_epoch_begin(0)
    report.on_train_batch_begin(0)
    return report


def test_batches_of_a_validation_are_a_sign_of_life(reader: reports.Reader) -> None:
    report = begun(compiled(), trainer.keras.Report())
    report.on_train_batch_end(0, {"loss": 0.5})
    report._due = 0
    report.on_test_batch_end(4, {"loss": 7.0})
    reporting.flush()
    assert reader.all() == [
        {"step": 1, "total": 1000, "loss": 0.5},
        {"step": 1, "total": 1000, "validation_batch": 5},
    ]


def test_steps_that_are_only_scheduled_are_not_reported(
    reader: reports.Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tf_keras under ParameterServerStrategy gives a promise in place of logs."""
    monkeypatch.setattr(trainer.keras, "WATCH_SECONDS", 0.11)
    model = compiled()
    report = begun(model, trainer.keras.Report())
    for batch in range(500):
        report.on_train_batch_end(batch, object())
    model.optimizer.iterations.assign(7)
    assert reader.one() == {"step": 7, "total": 1000}
    model.optimizer.iterations.assign(9)
    assert reader.one() == {"step": 9, "total": 1000}
    report.on_epoch_end(0, {"loss": 0.5})
    report.on_train_end()
    assert reader.all() == [{"step": 500, "total": 1000, "loss": 0.5}]


class Unread:
    """A figure on a device."""

    def __float__(self) -> float:
        raise AssertionError("it was read")


def test_figures_that_are_not_sent_are_not_read(reader: reports.Reader) -> None:
    report = begun(compiled(), trainer.keras.Report())
    report.on_train_batch_end(0, {"loss": 0.5})
    report._due = float("inf")
    for batch in range(1, 100):
        report.on_train_batch_end(batch, {"loss": Unread()})
    report.on_epoch_end(0, {"loss": 0.25})
    report.on_train_end()
    assert reports.merged(reader.all()) == {"step": 100, "total": 1000, "loss": 0.25}


def test_outside_of_a_job_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REPORTS, raising=False)
    monkeypatch.setattr(reporting, "_report", None)
    report = begun(None, trainer.keras.Report())
    for batch in range(10):
        report.on_train_batch_end(batch, {"loss": Unread()})
    report.on_test_batch_end(0, {"loss": Unread()})
    report.on_epoch_end(0, {"loss": Unread()})
    report.on_train_end()


def test_evaluate_and_predict_report_nothing(reader: reports.Reader) -> None:
    model, report = compiled(), trainer.keras.Report()
    model.fit(X, Y, verbose=0, callbacks=[report])
    reader.all()
    model.evaluate(X, Y, verbose=0, callbacks=[report])
    model.predict(X, verbose=0, callbacks=[report])
    reporting.flush()
    assert reader.all() == []


def test_a_tuner_may_copy_it(reader: reports.Reader) -> None:
    report = copy.deepcopy(trainer.keras.Report(batch_size=32))
    compiled().fit(X, Y, verbose=0, callbacks=[report])
    copy.deepcopy(report.params)
    assert reader.latest()["step"] == 10


@pytest.mark.parametrize(("size", "error"), [(0, ValueError), (-8, ValueError), (1.5, ValueError), ("32", TypeError)])
def test_a_batch_size_is_a_whole_number(size: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"^batch_size must be a whole number from 1 on, not {size!r}"):
        trainer.keras.Report(batch_size=size)


def test_values_of_tensorflow_are_figures(reader: reports.Reader) -> None:
    trainer.report(
        step=tf.Variable(3, dtype=tf.int64),
        total=tf.constant([[7]]),
        loss=tf.constant(0.25),
        half=tf.constant(0.5, tf.bfloat16),
        rate=keras.Variable(0.5),
        good=tf.constant(True),
    )
    assert reader.all() == [{"step": 3, "total": 7, "loss": 0.25, "half": 0.5, "rate": 0.5, "good": True}]


def test_a_tensor_within_a_function_has_no_value(reader: reports.Reader) -> None:
    @tf.function(autograph=False)
    def step(x: Any) -> Any:
        trainer.report(loss=x)
        return x

    with pytest.raises(TypeError, match=r"^loss must be a number, a bool or a short text, not SymbolicTensor"):
        step(tf.constant(1.0))
    with pytest.raises(TypeError, match=r"^loss must be a number, a bool or a short text, not EagerTensor"):
        trainer.report(loss=tf.ones(2))
