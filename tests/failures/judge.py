"""Judges a cell by the files that its job left, and by the exit codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.failures.cells import Cell, promise
from tests.failures.files import Files
from tests.failures.jobs import STEPS, STEPS_PER_CALL

TOLERANCE = {"parameter_server": 0.03, "multi_worker_mirrored": 0.0, "graph": 0.0}
"""How far the result may be from that of the unbroken job. Asynchronous steps differ from run to run: 24
unbroken ones had 0.958 to 0.969."""
HUNG = -1
"""Instead of the exit code of a job that does not end."""


@dataclass(frozen=True)
class Run:
    """What a job was seen to do."""

    codes: list[int]
    """Exit codes, one for each time it was started."""
    fault_at: float
    """Seconds since 1970."""
    kept: int
    """The step of the newest complete checkpoint at that moment."""
    output: str
    """What the job has printed."""


@dataclass(frozen=True)
class Verdict:
    generations: int
    repeated: int
    """Steps made twice."""
    next_step: float | None
    """Seconds from the fault to the next step; None if there is none."""
    accuracy: float | None
    """On the test data; of a graph job the result."""
    broken: list[str]
    """The promises that were broken."""


def figure_of(strategy: str, result: dict[str, Any]) -> float | None:
    """What a job's result is compared by."""
    value = (result.get("result") or {}).get("total") if strategy == "graph" else result.get("test_accuracy")
    return None if value is None else float(value)


def judge(cell: Cell, run: Run, files: Files, unbroken: float) -> Verdict:
    """
    Args:
        unbroken: the figure of the same job without a fault.
    """
    strategy, result, promised = cell.strategy, files.result(), promise(cell)
    steps, lives = STEPS[strategy], files.lives(cell.strategy)
    made, generations, figure = files.steps(strategy), result.get("generations", 0), figure_of(strategy, result)
    broken = []
    # A job that is complete before it is stopped has succeeded.
    complete = cell.fault == "stop all" and cell.moment == "end" and run.codes == [0]
    if tuple(run.codes) != promised.codes and not complete:
        ends = ["it does not end" if code == HUNG else f"exit code {code}" for code in run.codes]
        broken.append(f"{', then '.join(ends)}; promised {', then '.join(map(str, promised.codes))}")
    if len(run.codes) > 1 and generations < 2:
        broken.append("the generations are not numbered across the starts")
    if promised.goes_on and generations > 1:
        broken.append(f"{generations} generations: the others did not go on")
    if cell.fault == "disk" and run.output.count(f"{cell.victim} of failures has started") > len(run.codes):
        broken.append("the job was restarted, and did not end at once")
    if cell.fault == "memory" and cell.target != "local" and "out of memory at its limit" not in run.output:
        broken.append("the memory limit was not named")
    if made < steps:
        broken.append(f"{made} steps, not {steps}")
    if made - steps > (limit := _limit(promised.repeats, run, lives)):
        broken.append(f"{made - steps} steps were repeated, promised at most {limit} ({promised.repeats})")
    if figure is None or abs(figure - unbroken) > TOLERANCE[strategy]:
        broken.append(f"the result is {figure}, and {unbroken} of the unbroken job")
    if strategy != "graph" and result:
        broken += _left(cell, result, files)
    return Verdict(generations, made - steps, _next_step(run, lives), figure, broken)


def _limit(promised: str, run: Run, lives: list[list[float]]) -> int:
    """How many steps may be repeated."""
    before = sum(len(life) for life in lives if life and life[0] <= run.fault_at)
    limits = {"from the step": 0, "from the checkpoint": before - run.kept, "from the start": before}
    return max(limits[promised], STEPS_PER_CALL)


def _left(cell: Cell, result: dict[str, Any], files: Files) -> list[str]:
    steps = STEPS[cell.strategy]
    problems = [] if result["steps"] == steps else [f"result.json has {result['steps']} steps"]
    if files.checkpoints()[-1:] != [steps]:
        problems.append(f"the newest checkpoint is one of {files.checkpoints()}")
    elif files.updates() != steps:
        problems.append(f"the optimizer of the last checkpoint has counted {files.updates()} updates")
    if cell.task == "evaluator" and steps not in files.scored() and not result["warnings"]:
        problems.append(f"the evaluator has scored {files.scored()}, and result.json has no warning")
    return problems


def _next_step(run: Run, lives: list[list[float]]) -> float | None:
    """A line is written as its step begins: the next one proves that the step was made."""
    new = [life[0] for life in lives if life and life[0] > run.fault_at]
    after = sorted(time for life in lives for time in life if time > run.fault_at)
    found = min(new) if new else after[1] if len(after) > 1 else None
    return None if found is None else found - run.fault_at
