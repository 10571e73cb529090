"""The judge of the cells, on files as a job leaves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.failures.cells import Cell
from tests.failures.files import Files
from tests.failures.jobs import STEPS
from tests.failures.judge import HUNG, Run, judge
from trainer.model_dir import layout

AT, UNBROKEN = 1000.0, 0.97
CHIEF = Cell("local", "multi_worker_mirrored", "worker", "kill", "middle")
WORKER = Cell("local", "parameter_server", "worker", "kill", "middle")
WHOLE = STEPS["multi_worker_mirrored"]


def left(
    folder: Path,
    lives: list[range],
    *,
    task: str = "worker-0",
    updates: int = WHOLE,
    **result: Any,
) -> Files:
    """The files of a job whose lives made steps at these tenths of seconds, from the fault on."""
    files = Files(folder / "counts", folder / "run")
    files.counts.mkdir()
    for number, life in enumerate(lives):
        (files.counts / f"{task}-{number}").write_text("".join(f"{AT + tenth / 10:.6f}\n" for tenth in life))
    checkpoint = files.model_dir / f"checkpoints/step-{WHOLE:08d}"
    checkpoint.mkdir(parents=True)
    np.savez(checkpoint / "variables.npz", v0=np.int64(updates))
    (checkpoint / "meta.json").write_text(json.dumps({"variables": {"v0": {"path": "adam/iteration"}}}))
    found = {
        "status": "succeeded",
        "steps": WHOLE,
        "generations": len(lives),
        "test_accuracy": UNBROKEN,
        "warnings": [],
    }
    (layout.make_own(files.model_dir) / "result.json").write_text(json.dumps({**found, **result}))
    return files


def run(*codes: int) -> Run:
    return Run([*codes], AT, kept=300, output="")


def test_a_new_generation_from_the_checkpoint_keeps_the_promise(tmp_path: Path) -> None:
    files = left(tmp_path, [range(-400, 2), range(55, 55 + WHOLE - 300)])
    found = judge(CHIEF, run(0), files, UNBROKEN)
    assert (found.broken, found.repeated, found.generations) == ([], 102, 2)
    assert found.next_step == pytest.approx(5.5)


def test_others_that_go_on_keep_the_promise(tmp_path: Path) -> None:
    files = left(tmp_path, [range(-400, WHOLE - 400)], task="chief-0")
    found = judge(WORKER, run(0), files, UNBROKEN)
    assert (found.broken, found.repeated) == ([], 0)
    assert found.next_step == pytest.approx(0.2), "the line at 0.1 s is of a step that had begun before"


def test_a_job_that_is_complete_before_it_is_stopped_has_succeeded(tmp_path: Path) -> None:
    cell = CHIEF._replace(fault="stop all", moment="end")
    assert judge(cell, run(0), left(tmp_path, RIGHT), UNBROKEN).broken == []


FROM_THE_START = [range(-400, 2), range(55, 55 + WHOLE)]
RIGHT = [range(-400, WHOLE - 400)]


@pytest.mark.parametrize(
    ("cell", "codes", "lives", "more", "text"),
    [
        (CHIEF, [0], FROM_THE_START, {}, "402 steps were repeated, promised at most 102"),
        (CHIEF, [0], [range(-400, WHOLE - 401)], {}, f"{WHOLE - 1} steps, not {WHOLE}"),
        (CHIEF, [14], RIGHT, {}, "exit code 14; promised 0"),
        (CHIEF, [HUNG], RIGHT, {}, "it does not end"),
        (CHIEF, [0], RIGHT, {"test_accuracy": 0.96}, "the result is 0.96"),
        (CHIEF, [0], RIGHT, {"updates": WHOLE - 1}, f"counted {WHOLE - 1} updates"),
        (CHIEF, [0], RIGHT, {"steps": WHOLE + 1}, f"result.json has {WHOLE + 1} steps"),
        (WORKER, [0], [range(-400, 2), range(55, 55 + WHOLE - 402)], {}, "2 generations: the others did not go on"),
        (CHIEF._replace(fault="stop"), [0], [range(-400, 2), range(55, 55 + WHOLE - 300)], {}, "promised at most 10"),
        (CHIEF._replace(fault="stop all"), [143, 0], RIGHT, {}, "not numbered across the starts"),
        (CHIEF._replace(task="evaluator"), [0], RIGHT, {}, "the evaluator has scored []"),
        (CHIEF._replace(target="kind", fault="memory"), [0], RIGHT, {}, "the memory limit was not named"),
    ],
)  # fmt: skip
def test_a_broken_promise_is_named(
    tmp_path: Path, cell: Cell, codes: list[int], lives: list[range], more: dict[str, Any], text: str
) -> None:
    task = "chief-0" if cell.strategy == "parameter_server" else "worker-0"
    found = judge(cell, run(*codes), left(tmp_path, lives, task=task, **more), UNBROKEN)
    assert any(text in each for each in found.broken), found.broken
