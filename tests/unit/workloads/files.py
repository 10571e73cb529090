"""Workload files for tests, and the error line of a wrong one."""

from pathlib import Path
from typing import Any

import pytest

from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.workloads.check import check_workload

MODEL = "def model(): pass\n"
CONTRACT = "; see `trainer/workloads/workload.py` for the contract of a workload file"
ESTIMATOR = """from trainer.workloads.estimator import Estimator, EvalSpec, LinearRegressor, TrainSpec
def model(): return 1
def loss(y, prediction): return 2
def input_fn(context): return 3
trained, evaluated = TrainSpec(input_fn, max_steps=5), EvalSpec(input_fn, steps=6)
def train_and_evaluate(): return {}
"""


def spec_of(name: str | Path, **more: Any) -> JobSpec:
    return build({"name": "j", "strategy": "multi_worker_mirrored", "workload": str(name), **more})


def file(tmp_path: Path, text: str | bytes, name: str = "mine.py") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def problem(name: str | Path, look: Any = check_workload, **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        look(spec_of(name, **more))
    assert caught.value.code is Exit.USER
    (line,) = caught.value.problems
    assert line.isprintable()
    return line.removeprefix(f"workload: {name}")
