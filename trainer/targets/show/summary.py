"""The result of a job as text."""

from __future__ import annotations

import itertools
import shlex
import shutil
import sys
import textwrap
from pathlib import Path

from trainer.job.errors import UserError
from trainer.job.messages import aligned, digits
from trainer.model_dir import layout, result
from trainer.model_dir.result import EQUAL, Computed, Ran, Result, Training

FIGURES_SHOWN = 10
"""Maximum number of test metrics in a summary; result.json has all."""


def summary(model_dir: str) -> str:
    """The summary of a successful job: main figures, and where to find the rest."""
    try:
        job_result = read_result(model_dir)
        rows = figures(job_result) if job_result else []
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


def figures(job_result: Result) -> list[tuple[str, str]]:
    """The main figures of a result, with their names; missing ones are left out."""
    shown: dict[str, object] = {"status": job_result.status}
    bad: list[tuple[str, str]] = []
    if isinstance(job_result.figures, Training):
        tests = itertools.islice(job_result.figures.test.items(), FIGURES_SHOWN)
        shown |= {"steps": job_result.figures.steps, "skipped_batches": job_result.figures.skipped_batches}
        shown["stopped_early"] = job_result.figures.stopped_early
        shown["bad_records"] = job_result.figures.bad_records or None
        shown |= {f"test_{name}": value for name, value in tests}
        shown["examples_per_second"] = job_result.figures.examples_per_second
        shown["seconds_to_first_step"] = job_result.figures.seconds_to_first_step
        if best := job_result.figures.best:
            shown["best"] = f"{best.metric}={digits(best.value)} at step {best.step}"
        bad = [(f"export/{name}", verdict) for name, verdict in job_result.figures.exports.items() if verdict != EQUAL]
        shown["exports"] = EQUAL if job_result.figures.exports and not bad else None
    shown["generations"] = job_result.generations
    if isinstance(job_result.figures, Computed):
        values = job_result.figures.result
        shown |= {name: value for name, value in values.items() if isinstance(value, (bool, int, float, str))}
    if isinstance(job_result.figures, Ran):
        reported = itertools.islice(job_result.figures.reported.items(), FIGURES_SHOWN)
        shown |= {"steps": job_result.figures.steps or None, **dict(reported)}
    warnings = [("warning", text) for text in job_result.warnings]
    return [*((name, figure(value)) for name, value in shown.items() if value is not None), *bad, *warnings]


def program(name: str) -> str | None:
    """The command for a program, which may be installed beside this one; None if it is not installed."""
    beside = Path(sys.executable).parent / name
    if shutil.which(name):
        return name
    if not beside.exists():
        return None
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


def figure(value: object) -> str:
    """Formats a value for people: four significant digits, thousands with commas."""
    if isinstance(value, float):
        return digits(value, thousands=",")
    return f"{value:,}" if isinstance(value, int) else textwrap.shorten(str(value), 200)
