"""What the chief leaves of its result on Kubernetes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer.job import environment
from trainer.model_dir import result
from trainer.model_dir.result import JobEvent, Result, Training
from trainer.supervisor import termination

SUCCEEDED = Result(
    "j", "one_device", Training(617, {"accuracy": 0.97}, 1234.5, 2.5, {"import": 1.5}, 0.1, None), 3.5, 2,
    ["a warning"], {f"worker:{i}": "task=worker" for i in range(1000)}, [JobEvent(1.0, "formed")], {"tensorflow": "2"},
    {"train.steps": 617}, {"name": "j"},
)  # fmt: skip
"""Of a thousand tasks."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the kubelet, and a container that has it."""
    monkeypatch.delenv(environment.PARENT, raising=False)
    monkeypatch.setattr(termination, "PLACE", tmp_path / "termination-log")
    termination.PLACE.touch()
    return termination.PLACE


def test_the_main_part_of_a_result_arrives(tmp_path: Path, place: Path) -> None:
    result.write(str(tmp_path), SUCCEEDED)
    termination.leave(str(tmp_path))
    assert place.stat().st_size <= termination.MOST_BYTES
    found = result.parse_brief(json.loads(place.read_text()))
    assert (found.job, found.figures, found.seconds, found.generations, found.warnings) == (
        "j", SUCCEEDED.figures, 3.5, 2, ["a warning"],
    )  # fmt: skip
    assert (found.tasks, found.events, found.versions, found.compatibility_key, found.spec) == ({}, [], {}, {}, {})


def test_one_that_the_kubelet_would_cut_off_is_left_out(tmp_path: Path, place: Path) -> None:
    SUCCEEDED.warnings.append("w" * termination.MOST_BYTES)
    result.write(str(tmp_path), SUCCEEDED)
    SUCCEEDED.warnings.pop()
    termination.leave(str(tmp_path))
    assert place.read_bytes() == b""


@pytest.mark.parametrize("content", [None, "cut o", '{"version": 99}'])
def test_without_a_result_there_is_no_message(tmp_path: Path, place: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    termination.leave(str(tmp_path))
    assert place.read_bytes() == b""


def test_a_local_job_in_a_container_is_not_that_container_s(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environment.PARENT, "1")
    result.write(str(tmp_path), SUCCEEDED)
    termination.leave(str(tmp_path))
    assert place.read_bytes() == b""


def test_elsewhere_no_file_is_made(tmp_path: Path, place: Path) -> None:
    place.unlink()
    result.write(str(tmp_path), SUCCEEDED)
    termination.leave(str(tmp_path))
    assert not place.exists()
