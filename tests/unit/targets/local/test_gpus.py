"""Which tasks of a local job get which GPUs. A program stands in for nvidia-smi."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from trainer.job.cluster import tasks_of
from trainer.job.load import build
from trainer.targets.local.gpus import assign


def shared(
    tasks: dict[str, Any], strategy: str = "multi_worker_mirrored"
) -> tuple[dict[str, dict[str, str]], str | None]:
    spec = build({"name": "j", "strategy": strategy, "tasks": tasks})
    return assign(spec, tasks_of(spec))


def machine(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str | None) -> None:
    """One whose nvidia-smi is this script; None: it has none."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    path = folder / "nvidia-smi"
    if script is not None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    else:
        monkeypatch.setenv("PATH", str(folder))


FOUR = 'test "$1 $2" = "--query-gpu=index --format=csv,noheader" && printf "0\\n1\\n2\\n3\\n"'


def test_each_task_has_gpus_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine(monkeypatch, tmp_path, FOUR)
    found, line = shared({"worker": {"replicas": 2, "gpus": 2}})
    assert found == {"worker:0": {"CUDA_VISIBLE_DEVICES": "0,1"}, "worker:1": {"CUDA_VISIBLE_DEVICES": "2,3"}}
    assert line is None


def test_tasks_without_gpus_take_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine(monkeypatch, tmp_path, FOUR)
    found, line = shared({"ps": 1, "worker": {"replicas": 3, "gpus": 1}}, "parameter_server")
    workers = {f"worker:{i}": {"CUDA_VISIBLE_DEVICES": str(i)} for i in range(3)}
    # Named: a program would get what is set where the job is started.
    assert found == {"ps:0": {"CUDA_VISIBLE_DEVICES": "-1"}, "chief:0": {"CUDA_VISIBLE_DEVICES": "-1"}, **workers}
    assert line is None


@pytest.mark.parametrize("given", [None, "false"])
def test_tasks_share_gpus_that_do_not_suffice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str | None
) -> None:
    machine(monkeypatch, tmp_path, FOUR)
    if given:
        monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", given)
    found, line = shared({"worker": {"replicas": 3, "gpus": 3}})
    assert [each["CUDA_VISIBLE_DEVICES"] for each in found.values()] == ["0,1,2", "3,0,1", "2,3,0"]
    assert {each["TF_FORCE_GPU_ALLOW_GROWTH"] for each in found.values()} == {given or "true"}
    assert line == "tasks ask for 9 GPUs, and this machine has 4: tasks share them"


def test_only_visible_gpus_are_shared_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine(monkeypatch, tmp_path, "exit 1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f05, 6")
    found, line = shared({"worker": {"replicas": 2, "gpus": 1}})
    assert [each["CUDA_VISIBLE_DEVICES"] for each in found.values()] == ["GPU-8f05", "6"]
    assert line is None


@pytest.mark.parametrize(
    "script", [None, "exit 9", "printf ''", 'printf "0\\n"'], ids=["none", "fails", "empty", "one"]
)
def test_a_task_finds_out_itself_that_it_has_too_few(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None
) -> None:
    machine(monkeypatch, tmp_path, script)
    assert shared({"worker": {"replicas": 2, "gpus": 2}}) == ({}, None)


@pytest.mark.parametrize("hidden", ["-1", ""])
def test_hidden_gpus_stay_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hidden: str) -> None:
    machine(monkeypatch, tmp_path, FOUR)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert shared({"worker": {"replicas": 2, "gpus": 1}}) == ({}, None)


def test_a_job_without_gpus_asks_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine(monkeypatch, tmp_path, f"touch {tmp_path}/asked; printf '0\\n'")
    assert shared({"worker": 2}) == ({}, None)
    assert not (tmp_path / "asked").exists()
