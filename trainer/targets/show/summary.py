"""The result of a job as text."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from trainer.job.errors import UserError
from trainer.job.messages import aligned
from trainer.model_dir import layout, result
from trainer.model_dir.result import Result
from trainer.model_dir.result_rows import rows_of


def summary(model_dir: str) -> str:
    """The summary of a successful job: main figures, and where to find the rest."""
    try:
        job_result = read_result(model_dir)
        rows = rows_of(job_result) if job_result else []
    except UserError as error:
        rows = [("warning", str(error))]
    rows.append(("result", str(layout.result(model_dir))))
    if (model := layout.exported_model(model_dir)).exists():
        rows.append(("model", str(model)))
    if (curves := layout.tensorboard(model_dir)).exists() and (tensorboard := program("tensorboard")):
        rows.append(("next", shlex.join([tensorboard, "--logdir", str(curves)])))
    return "\n".join(["", *aligned(rows)])


def read_result(model_dir: str) -> Result | None:
    """The result of a job; None while there is none.

    Raises:
        UserError: there is a result.json that cannot be read.
    """
    return result.read(model_dir)


def program(name: str) -> str | None:
    """The command for a program, which may be installed beside this one; None if it is not installed."""
    beside = Path(sys.executable).parent / name
    if shutil.which(name):
        return name
    if not beside.exists():
        return None
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)
