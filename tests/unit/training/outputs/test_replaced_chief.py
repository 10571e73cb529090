"""The child of a chief that was replaced leaves the files of its successor as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import keras
import pytest

from tests.unit.training import jobs
from trainer.job import environment
from trainer.job.errors import Exit, TrainerError
from trainer.job.load import build
from trainer.job.train import KeepBest
from trainer.model_dir import layout, lease
from trainer.training.outputs import exports
from trainer.training.outputs.best import Best
from trainer.training.outputs.curve import Curve


def curve(folder: Path) -> None:
    Curve(str(folder), "metrics", 0)


def best(folder: Path) -> None:
    spec = build({"name": "j", "strategy": "one_device", "model_dir": str(folder)})
    job = jobs.with_workload(model=lambda: jobs.network(keras.layers.Dense(10)))
    Best(replace(job, spec=spec), KeepBest(metric="loss"))


def export(folder: Path) -> None:
    exports.export(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]), str(folder))


@pytest.mark.parametrize("write", [curve, best, export])
def test_it_replaces_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None]) -> None:
    files = [
        tmp_path / "metrics.jsonl",
        layout.best(tmp_path) / "checkpoints" / "step-00000002" / "meta.json",
        layout.export(tmp_path) / "model.keras",
        tmp_path / ".tmp-export-1" / "model.keras",
    ]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"step": 2}\n')
    lease.take(str(tmp_path), "new", "", "boot")
    monkeypatch.setenv(environment.LEASE, lease.holder(str(tmp_path), "old"))
    with pytest.raises(TrainerError) as caught:
        write(tmp_path)
    assert caught.value.code == Exit.REPLACED
    assert [path.read_text() for path in files] == ['{"step": 2}\n'] * len(files)
