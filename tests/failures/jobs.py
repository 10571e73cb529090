"""The jobs of the cells: small, the same for each fault of a strategy, with the moments that a fault waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.failures.cells import TASKS, Cell
from tests.failures.files import Files
from tests.local import specs

WORKLOADS = Path(__file__).parent / "workloads"
STEPS = {"parameter_server": 800, "multi_worker_mirrored": 800, "graph": 100}
"""Some eight seconds of training, and four of a graph job."""
CHECKPOINT_STEPS = 150
EARLY, MIDDLE, SLOW_CHECKPOINT = 10, {"parameter_server": 400, "multi_worker_mirrored": 400, "graph": 50}, 450
"""The steps of the moments."""
STEPS_PER_CALL = 10
LEARNING_RATE = {"parameter_server": 1e-3, "multi_worker_mirrored": 3e-3}
"""At 3e-3 asynchronous steps, whose gradients are older, once let Adam diverge in the last 200 of 800 steps."""
WINDOW = {"local": 1.5, "compose": 2.5, "kind": 5.0}
"""How many seconds the last two moments last: the disk writes the checkpoint, and the test data are evaluated."""
TEST_BATCHES = 12
MEMORY = "1Gi"
"""The limit of a container that is to reach it."""
DEADLINES = {
    "local": {"start": 60, "rejoin": 60, "chief_lost": 40, "hang": 12, "task_lost": 4},
    "compose": {"start": 60, "rejoin": 60, "chief_lost": 60, "task_lost": 5},
    "kind": {"start": 300, "rejoin": 300, "chief_lost": 300},
}
MISSED_SECONDS = {"local": 8.0, "compose": 10.0, "kind": 20.0}
"""How long a task is frozen or cut off: twice deadlines.task_lost."""


def spec_of(target: str, strategy: str, counts: str, cell: Cell | None = None) -> dict[str, Any]:
    """The spec of a cell's job, or of the unbroken one.

    Args:
        counts: the folder, as the tasks see it, to which the job writes its steps.
    """
    settings: dict[str, Any] = {"counts": counts}
    more: dict[str, Any] = {"deadlines": DEADLINES[target], "settings": settings, "tasks": {}}
    if cell and cell.task == "evaluator":
        more["tasks"] = {"evaluator": {"replicas": 1}}
    if cell and cell.fault == "memory" and target != "local":
        task_type, _, _ = TASKS[strategy][cell.task].partition(":")
        more["tasks"][task_type] = {"replicas": 2 if task_type == "worker" else 1, "memory": MEMORY}
    if strategy == "graph":
        more |= {"workload": str(WORKLOADS / "graph.py"), "tasks": {"worker": 2, **more["tasks"]}}
        settings |= {"steps": STEPS["graph"], "last_seconds": WINDOW[target]}
        return {"name": "failures", "strategy": "graph", "warm_standby": False, **more}
    make = {"parameter_server": specs.parameter_server, "multi_worker_mirrored": specs.mirrored}[strategy]
    train = {
        "checkpoint_steps": CHECKPOINT_STEPS,
        "steps_per_call": STEPS_PER_CALL,
        "learning_rate": LEARNING_RATE[strategy],
        "seed": 7,
    }
    settings["evaluation_seconds"] = WINDOW[target] / TEST_BATCHES
    if cell and cell.moment == "checkpoint":
        settings |= {"slow_checkpoint": SLOW_CHECKPOINT, "slow_seconds": WINDOW[target]}
    workload = str(WORKLOADS / "training.py")
    return {**make(steps=STEPS[strategy], workload=workload, train=train, **more), "name": "failures"}


def is_moment(cell: Cell, files: Files) -> bool:
    """Whether it is time for the fault."""
    steps = files.steps(cell.strategy)
    if cell.moment == "early":
        # A stop that comes before the chief has heard of the first step has nothing to save.
        return steps >= EARLY and files.first_step_is_known() and not files.checkpoints()
    if cell.moment == "middle":
        return steps >= MIDDLE[cell.strategy]
    if cell.moment == "checkpoint":
        return files.is_writing(SLOW_CHECKPOINT)
    if cell.strategy == "graph":
        return steps >= STEPS["graph"] - 1 and not files.result()
    return STEPS[cell.strategy] in files.checkpoints() and not files.result()


def was_moment(cell: Cell, files: Files) -> bool:
    """Whether it is still that moment, right after the fault."""
    return files.steps(cell.strategy) < STEPS[cell.strategy] if cell.moment == "middle" else is_moment(cell, files)
