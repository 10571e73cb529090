"""The result of a job as text."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.job.messages import digits
from trainer.model_dir import layout
from trainer.targets.text import aligned, json_object

FIGURES_SHOWN = 10
"""Of the test split, in a summary; result.json has all."""


def summary(model_dir: str) -> str:
    """The end of a job that succeeded: main figures, and where to find the rest."""
    rows = [*figures(read_result(model_dir)), ("result", str(layout.result(model_dir)))]
    if (model := layout.exported_model(model_dir)).exists():
        rows.append(("model", str(model)))
    if (curves := layout.tensorboard(model_dir)).exists() and (tensorboard := program("tensorboard")):
        rows.append(("next", shlex.join([tensorboard, "--logdir", str(curves)])))
    return "\n".join(["", *aligned(rows)])


def read_result(model_dir: str) -> dict[str, Any]:
    """The object in result.json; empty if there is none that can be read."""
    try:
        return json_object(layout.result(model_dir).read_bytes())
    except OSError:
        return {}


def figures(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The main figures of a result, with their names; nothing for one that it does not have."""
    tests = [name for name in result if name.startswith("test_")][:FIGURES_SHOWN]
    names = (
        "status",
        "steps",
        "skipped_batches",
        *tests,
        "examples_per_second",
        "seconds_to_first_step",
        "generations",
    )
    computed = result.get("result")  # of a graph job
    own = computed if isinstance(computed, dict) else {}
    shown = {name: result[name] for name in names if result.get(name) is not None}
    shown |= {name: value for name, value in own.items() if isinstance(value, (bool, int, float, str))}
    warnings = [("warning", str(text)) for text in result.get("warnings") or ()]
    return [*((name, figure(value)) for name, value in shown.items()), *warnings]


def program(name: str) -> str | None:
    """How to type a program, which may be installed beside this one; None if it is not installed."""
    beside = Path(sys.executable).parent / name
    if shutil.which(name):
        return name
    if not beside.exists():
        return None
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


def figure(value: object) -> str:
    """A value for people: four significant digits, thousands with commas."""
    if isinstance(value, float):
        return digits(value, thousands=",")
    return f"{value:,}" if isinstance(value, int) else textwrap.shorten(str(value), 200)
