from pathlib import Path
from typing import Any

import keras
import pytest

from trainer.workloads import fit
from trainer.workloads.fit import Fit


def a_run(*callbacks: Any, is_chief: bool = True) -> Fit:
    return Fit(train="data", steps_per_epoch=5, epochs=4, initial_epoch=2, job_callbacks=callbacks, is_chief=is_chief)


def writers(tmp_path: Path) -> list[Any]:
    return [
        keras.callbacks.ModelCheckpoint(tmp_path / "a.keras"),
        keras.callbacks.CSVLogger(str(tmp_path / "a.csv")),
        keras.callbacks.TensorBoard(str(tmp_path)),
        keras.callbacks.BackupAndRestore(str(tmp_path)),
    ]


@pytest.mark.parametrize("is_chief", [True, False])
def test_the_jobs_callbacks_come_first_and_the_users_stay_in_their_order(is_chief: bool) -> None:
    own = [keras.callbacks.EarlyStopping(), keras.callbacks.LambdaCallback(), keras.callbacks.TerminateOnNaN()]
    assert a_run("one", "two", is_chief=is_chief).callbacks(*own) == ["one", "two", *own]
    assert a_run("one", is_chief=is_chief).callbacks() == ["one"]


def test_the_chief_keeps_callbacks_that_write_files(tmp_path: Path) -> None:
    own = writers(tmp_path)
    assert a_run("job").callbacks(*own) == ["job", *own]


def test_another_task_leaves_out_callbacks_that_write_files_and_keeps_the_rest(tmp_path: Path) -> None:
    own, stopping = writers(tmp_path), keras.callbacks.EarlyStopping()
    assert a_run("job", is_chief=False).callbacks(*own, stopping) == ["job", stopping]


def test_a_job_callback_is_never_left_out(tmp_path: Path) -> None:
    of_job = writers(tmp_path)
    assert a_run(*of_job, is_chief=False).callbacks() == of_job


def test_by_default_fit_is_called_with_all_settings_of_the_job() -> None:
    calls: list[tuple[Any, ...]] = []

    class Model:
        def fit(self, *args: Any, **kwargs: Any) -> None:
            calls.append((args, kwargs))

    fit.fit(Model(), a_run("job"))
    expected = {"steps_per_epoch": 5, "epochs": 4, "initial_epoch": 2, "callbacks": ["job"], "verbose": 0}
    assert calls == [(("data",), expected)]
