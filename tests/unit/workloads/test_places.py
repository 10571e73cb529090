"""`trainer.data`, in a job and outside one."""

from __future__ import annotations

import subprocess
import sys

import pytest

import trainer
from trainer.job.data import Data, variables
from trainer.job.errors import UserError
from trainer.workloads.places import data


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"train": Data(path="/data/train"), "no-labels": Data(path="gs://b/c")}
    for name, value in {**variables(given), "TRAINER_DATA_DIR": "/x", "TRAINER_JOB": "{}"}.items():
        monkeypatch.setenv(name, value)


def test_each_name_has_its_path() -> None:
    assert trainer.data is data
    assert (data("train"), data("no-labels")) == ("/data/train", "gs://b/c")


def test_an_unknown_name_names_the_known_ones() -> None:
    with pytest.raises(
        UserError, match=r"^trainer.data\('trian'\): .* `data` has no-labels, train; did you mean train\?$"
    ):
        data("trian")
    with pytest.raises(UserError, match=r"the spec's `data` has no-labels, train$"):
        data("dir")


def test_without_a_job_the_variable_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINER_JOB")
    assert data("train") == "/data/train"
    with pytest.raises(UserError, match=r"outside a job; set TRAINER_DATA_VAL to a folder$"):
        data("val")


def test_importing_trainer_imports_nothing_else() -> None:
    code = "import sys, trainer; print(sorted(m for m in sys.modules if m.startswith(('trainer', 'pydantic'))))"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout == "['trainer']\n"
    with pytest.raises(AttributeError, match="module 'trainer' has no attribute 'dta'"):
        trainer.dta  # type: ignore[attr-defined]  # noqa: B018
