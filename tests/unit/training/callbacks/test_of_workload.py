"""What callbacks() gives is checked before the first step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest

import trainer.keras
from tests.unit.training.callbacks.loop import RecordingChannel, compiled, job_of, train
from trainer.job.errors import UserError
from trainer.training.callbacks import of_workload

pytestmark = pytest.mark.part("training")

K = keras.callbacks


class Own(keras.callbacks.Callback):  # type: ignore[misc]
    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        pass


@pytest.mark.parametrize(
    ("made", "stride"),
    [
        (list, 0),
        (
            lambda: [
                K.EarlyStopping(),
                K.CSVLogger("log.csv"),
                K.TerminateOnNaN(),
                K.TensorBoard(),
            ],
            0,
        ),
        (lambda: [K.ModelCheckpoint("m.keras")], 0),
        (
            lambda: [
                K.ModelCheckpoint("m.keras", save_freq=6),
                K.ModelCheckpoint("n.keras", save_freq=4),
            ],
            2,
        ),
        (lambda: [K.TensorBoard(update_freq=5)], 1),
        (lambda: [K.TensorBoard(profile_batch=(2, 3))], 1),
        (lambda: [K.LambdaCallback(on_epoch_end=print)], 0),
        (lambda: [K.LambdaCallback(on_train_batch_end=print)], 1),
        (lambda: [Own(), K.ModelCheckpoint("m.keras", save_freq=6)], 1),
    ],
)
def test_callbacks_with_hooks_of_batches_are_found(made: Callable[[], list[Any]], stride: int) -> None:
    assert of_workload.stride(made()) == stride


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: None, "callbacks() must give a list, gave NoneType"),
        (lambda: [K.EarlyStopping], "callbacks() must give Keras callbacks, one is type"),
        (
            lambda: [K.EarlyStopping()],
            "EarlyStopping monitors val_loss, and there is no validation data; define val",
        ),
        (
            lambda: [K.ReduceLROnPlateau("val_accuracy")],
            "ReduceLROnPlateau monitors val_accuracy, and there is no",
        ),
        (
            lambda: [K.ModelCheckpoint("m.keras", save_best_only=True)],
            "ModelCheckpoint monitors val_loss",
        ),
        (
            lambda: [K.ModelCheckpoint("{epoch}-{val_loss:.2f}.keras")],
            "ModelCheckpoint needs validation data for its",
        ),
        (
            lambda: [K.EarlyStopping("acc")],
            "EarlyStopping monitors acc, and the logs have loss, accuracy",
        ),
        (
            lambda: [K.SwapEMAWeights()],
            "SwapEMAWeights exchanges the weights that are trained; remove it",
        ),
    ],
)
def test_callbacks_that_cannot_work_are_refused(tmp_path: Path, made: Callable[[], Any], message: str) -> None:
    job = job_of(tmp_path, lambda _: made(), validation_split=0)
    with pytest.raises(UserError) as error:
        of_workload.callbacks(job, ["loss", "accuracy"], validates=False)
    assert message in str(error.value)


def test_what_validation_gives_may_be_monitored(tmp_path: Path) -> None:
    backup = K.BackupAndRestore(tmp_path / "backup")
    wanted = [
        K.EarlyStopping(),
        K.ModelCheckpoint("{val_loss}.keras"),
        K.ReduceLROnPlateau("learning_rate", mode="min"),
    ]
    job = job_of(tmp_path, lambda _: [*wanted, backup])
    found, lines = of_workload.callbacks(job, ["loss", "accuracy"], validates=True)
    assert found == wanted
    assert lines == ["callbacks(): BackupAndRestore is left out: checkpoints of trainer replace it, at any step"]


def test_a_report_of_a_program_is_left_out(tmp_path: Path) -> None:
    job = job_of(tmp_path, lambda _: [trainer.keras.Report()])
    found, lines = of_workload.callbacks(job, ["loss", "accuracy"], validates=True)
    assert found == []
    assert lines == ["callbacks(): Report is left out: the job itself reports these figures"]


def test_a_rate_that_follows_a_schedule_is_not_set(tmp_path: Path) -> None:
    def scheduled() -> Any:
        return compiled(keras.optimizers.schedules.CosineDecay(0.01, 100))

    job = job_of(tmp_path, lambda _: [K.ReduceLROnPlateau("loss")], scheduled)
    with pytest.raises(UserError, match=r"ReduceLROnPlateau: .*its learning rate is not settable"):
        train(job)


def test_an_error_names_the_callback_its_hook_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "import keras\n\nclass Mine(keras.callbacks.Callback):\n    def on_epoch_begin(self, epoch, logs=None):\n"
        "        raise ValueError('no such epoch')\n\nDATASET = 'digits'\n\ndef model():\n"
        "    return keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(10)])\n\n"
        "def callbacks():\n    return [Mine()]\n"
    )
    from trainer.job.cluster import tasks_of
    from trainer.job.load import build
    from trainer.training.task import load_task

    spec = build({"name": "j", "strategy": "one_device", "workload": str(file), "model_dir": str(tmp_path / "run")})
    with pytest.raises(UserError) as error:
        train(load_task(spec, tasks_of(spec)[0]))
    assert f"{file}:5: ValueError: no such epoch (in Mine.on_epoch_begin)" in str(error.value)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    job = job_of(tmp_path, lambda _: [K.CSVLogger("/nowhere/log.csv")])
    with pytest.raises(UserError, match=r"CSVLogger.on_train_begin: /nowhere/log.csv: "):
        train(job, channel=RecordingChannel())


def test_callbacks_may_take_the_folder_of_the_job(tmp_path: Path) -> None:
    folders = []

    def callbacks(_patience: int = 3, model_dir: str = "") -> list[Any]:
        folders.append(model_dir)
        return []

    job = job_of(tmp_path, lambda _: [])
    object.__setattr__(job.workload, "callbacks", callbacks)
    of_workload.callbacks(job, [], validates=True)
    assert folders == [str(tmp_path / "run")]
