"""The spec of a soak job and its faults, generated at random from a seed, so that they can be repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKLOAD = str(Path(__file__).parent / "counted.py")
STEPS = {"parameter_server": 800, "multi_worker_mirrored": 800, "mirrored": 3000, "one_device": 6000}
"""About ten seconds each: there is a middle for something to happen in."""
FAULTS = (
    "kill",
    "kill supervisor",
    "pause",
    "pause supervisor",
    "pause both",
    "end task",
    "end job",
    "full disk",
    "clock",
)


@dataclass(frozen=True)
class Fault:
    kind: str
    task: str
    after: float
    """Seconds after the one before; 0 for several at once."""
    seconds: float
    """How long a pause lasts, or by how much the clock steps."""


def job(draw: random.Random) -> dict[str, Any]:
    strategy = draw.choice([*STEPS])
    several = strategy in ("parameter_server", "multi_worker_mirrored")
    tasks: dict[str, Any] = {"worker": {"replicas": draw.choice([2, 2, 3]) if several else 1}}
    if strategy == "mirrored" or (strategy == "multi_worker_mirrored" and draw.random() < 0.2):
        tasks["worker"]["cpu_devices"] = 2
    if strategy == "parameter_server":
        tasks["ps"] = draw.choice([1, 1, 2])
    if draw.random() < 0.15:
        tasks["evaluator"] = 1
    precision = draw.choice(["none", "none", "float16", "bfloat16"])
    return {
        "name": "soak",
        "strategy": strategy,
        "workload": WORKLOAD,
        "settings": {
            "batch_norm": draw.random() < 0.4,
            "generator": draw.random() < 0.3,
            "fork": draw.random() < 0.2,
            "overflow": precision == "float16" and draw.random() < 0.5,
        },
        "tasks": tasks,
        "train": {
            "steps": STEPS[strategy],
            "batch_size": draw.choice([8, 16, 32]),
            "optimizer": "sgd",
            "learning_rate": 1.0,
            "mixed_precision": precision,
            "checkpoint_steps": draw.choice([37, 100, 250]),
            "log_steps": draw.choice([50, 100]),
            "seed": draw.randrange(1000),
        },
        "warm_standby": draw.random() < 0.3,
        "deadlines": {"start": 90, "rejoin": 90, "hang": 20, "progress": 60, "chief_lost": 60},
    }


def faults(draw: random.Random, tasks: list[str], allowed: tuple[str, ...]) -> list[Fault]:
    """One to three of them."""
    found = []
    for i in range(draw.choice([1, 1, 2, 3])):
        kind = draw.choice(allowed)
        after = draw.uniform(0, 10) if i == 0 else draw.choice([0.0, draw.uniform(0, 6)])
        seconds = (
            draw.uniform(-7200, 7200) if kind == "clock" else draw.choice([draw.uniform(1, 9), draw.uniform(9, 40)])
        )
        found.append(Fault(kind, draw.choice(tasks), after, seconds))
    return found
