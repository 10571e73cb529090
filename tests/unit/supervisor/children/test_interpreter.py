"""The probe of a program's interpreter."""

import os
import sys
from pathlib import Path

import pytest

from trainer import host
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.supervisor.children.interpreter import probe


@pytest.fixture
def spec() -> JobSpec:
    words = [sys.executable, "-c", "pass"]
    return build({"name": "x", "strategy": "multi_worker_mirrored", "program": words, "tasks": {"worker": 1}})


def test_the_versions_are_those_that_the_package_metadata_have(spec: JobSpec) -> None:
    versions, _ = probe(spec, "worker", os.environ)
    assert versions["tensorflow"][0].isdigit()
    assert {name: versions[name] for name in host.versions()} == host.versions()


@pytest.mark.parametrize(
    ("folders", "version"),
    [
        (["tf_keras-2.19.0.dist-info"], "2.19.0"),
        (["tf_keras_nightly-2.20.0.dev2025-py3.11.egg-info"], "2.20.0.dev2025"),
        (["tf_keras_nightly-2.20.0.dist-info", "tf_keras-2.19.0.dist-info"], "2.19.0"),
        (["tf_keras.egg-info"], "unknown"),
        (["tf_keras", "other-1.0.dist-info"], "absent"),
    ],
)
def test_a_version_is_in_the_name_of_a_folder(spec: JobSpec, tmp_path: Path, folders: list[str], version: str) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir()
    alone = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    assert probe(spec, "worker", alone)[0]["tf_keras"] == version


def test_the_first_folder_of_the_path_counts(spec: JobSpec, tmp_path: Path) -> None:
    (tmp_path / "tensorflow-1.2.3.dist-info").mkdir()
    assert probe(spec, "worker", {**os.environ, "PYTHONPATH": str(tmp_path)})[0]["tensorflow"] == "1.2.3"


def test_other_work_is_done_while_the_interpreter_looks(spec: JobSpec) -> None:
    done: list[str] = []
    probe(spec, "worker", os.environ, lambda: done.append("imports"))
    assert done == ["imports"]


def test_an_interpreter_that_answers_nothing_has_unknown_versions(spec: JobSpec, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho not JSON\n")
    python.chmod(0o755)
    given = spec.model_copy(update={"python": str(python), "program": ["python", "x.py"]})
    versions, has_trainer = probe(given, "worker", os.environ)
    assert (versions["tensorflow"], versions["python"], has_trainer) == ("unknown", "unknown", True)
