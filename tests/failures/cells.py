"""The table of failures, as data: every cell is a fault that meets a task at a moment of a job, and what is promised.

A cell that makes no sense is left out by a rule, which has a reason (`LEFT_OUT`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

TARGETS = ("local", "compose", "kind")
TASKS = {
    "parameter_server": {"chief": "chief:0", "worker": "worker:1", "ps": "ps:0", "evaluator": "evaluator:0"},
    "multi_worker_mirrored": {"chief": "worker:0", "worker": "worker:1", "evaluator": "evaluator:0"},
    "graph": {"chief": "chief:0", "worker": "worker:1"},
}
"""What is hit under each strategy: its name in the table, and its task. A multi_worker_mirrored job is led by its
first worker."""
ON_KUBERNETES = {"worker:0": "chief:0", "worker:1": "worker:0"}
"""There that worker is named chief:0 (docs/kubernetes.md)."""
JOB = "job"
"""What is hit where the fault concerns no single task."""
MOMENTS = {
    "early": "after the first steps, once the chief has heard of one, before the first checkpoint",
    "middle": "in the middle of the training, between two checkpoints",
    "checkpoint": "while a checkpoint is written",
    "end": "after the last step, in the final evaluation; of a graph job, in its last step",
}
FAULTS = {
    "kill": "SIGKILL to the task: its supervisor (local), or the container's first process",
    "crash": "SIGKILL to the child alone, the process that trains or serves",
    "stop": "SIGTERM to the task, and nobody forbids its return",
    "freeze": "SIGSTOP to all processes of the task, until it has been missed for a while; then SIGCONT",
    "hang": "SIGSTOP to the child alone, for good",
    "cut": "the task is cut off from the network, until it has been missed for a while",
    "memory": "the kernel kills the child at the memory limit of its container (local: of its cgroup)",
    "disk": "the disk of `model_dir` is full; after the job's end there is room again, and the job is started again",
    "stop all": "SIGTERM to the whole job; then the job is started again",
    "drain": "`kubectl drain` of the task's node",
    "power": "the task's node is powered off, and stays off until the job is done",
}
OF_THE_JOB = ("disk", "stop all")
"""The faults that concern no single task."""


class Cell(NamedTuple):
    target: str
    strategy: str
    task: str
    """A name of TASKS[strategy], or JOB."""
    fault: str
    moment: str

    @property
    def name(self) -> str:
        return "/".join(self).replace(" ", "-")

    @property
    def victim(self) -> str:
        """The task that is hit, such as worker:1; of a fault that concerns none, the chief."""
        task = TASKS[self.strategy].get(self.task) or TASKS[self.strategy]["chief"]
        renamed = self.target == "kind" and self.strategy == "multi_worker_mirrored"
        return ON_KUBERNETES.get(task, task) if renamed else task


class Rule(NamedTuple):
    """Cells that are not tried."""

    what: str
    holds: Callable[[Cell], bool]
    why: str


LEFT_OUT = [
    Rule(
        "graph jobs, while a checkpoint is written",
        lambda cell: cell.strategy == "graph" and cell.moment == "checkpoint",
        "they write none",
    ),
    Rule(
        "drain and power, outside of Kubernetes",
        lambda cell: cell.target != "kind" and cell.fault in ("drain", "power"),
        "only there a job has nodes that it can lose",
    ),
    Rule(
        "cut, on local",
        lambda cell: cell.target == "local" and cell.fault == "cut",
        "between the tasks of one machine there is no network that could be cut",
    ),
    Rule(
        "crash and hang, in containers",
        lambda cell: cell.target != "local" and cell.fault in ("crash", "hang"),
        "a supervisor does the same for its child there",
    ),
    Rule(
        "disk, on Kubernetes",
        lambda cell: cell.target == "kind" and cell.fault == "disk",
        "the volumes of kind are folders of one disk, without a limit of their own",
    ),
    Rule(
        "in containers all faults but kill, except in the middle",
        lambda cell: cell.target != "local" and cell.fault != "kill" and cell.moment != "middle",
        "what a moment changes is tried by kill, and by all faults on local",
    ),
]
"""The first rule that holds gives the reason."""


def left_out(cell: Cell) -> str:
    """Why a cell is not tried; empty if it is."""
    return next((rule.why for rule in LEFT_OUT if rule.holds(cell)), "")


def combinations() -> list[Cell]:
    """Every cell, whether or not it is tried."""
    return [
        Cell(target, strategy, task, fault, moment)
        for target in TARGETS
        for strategy, tasks in TASKS.items()
        for fault in FAULTS
        for task in ([JOB] if fault in OF_THE_JOB else tasks)
        for moment in MOMENTS
    ]


def cells(target: str | None = None) -> list[Cell]:
    """The cells that are tried, on one target or on all."""
    return [cell for cell in combinations() if not left_out(cell) and target in (None, cell.target)]


class Promise(NamedTuple):
    """What must be true of a cell, beside what must be true of all (judge.py)."""

    codes: tuple[int, ...] = (0,)
    """Exit codes of the job, one for each time it is started."""
    goes_on: bool = False
    """Whether the others go on: no new generation."""
    repeats: str = "from the checkpoint"
    """Where the job goes on, so which steps are repeated: `from the step` that it was at (some that were under way may
    be lost), `from the checkpoint` that was the newest complete one, or `from the start`."""


def promise(cell: Cell) -> Promise:
    """As README.md and docs/operating.md give it."""
    codes = {"disk": (2, 0), "stop all": (143, 0)}.get(cell.fault, (0,))
    if cell.task == "evaluator" or (cell.strategy, cell.task) == ("parameter_server", "worker"):
        # A drained or lost node may have other tasks too.
        alone = cell.fault not in ("drain", "power")
        return Promise(codes, goes_on=alone, repeats="from the step" if alone else "from the checkpoint")
    if cell.strategy == "graph":
        return Promise(codes, repeats="from the start")
    return Promise(codes, repeats="from the step" if cell.fault in ("stop", "stop all") else "from the checkpoint")
