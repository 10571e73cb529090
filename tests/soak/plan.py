"""The spec of a soak job and its faults, generated at random from a seed, so that they can be repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKLOAD = str(Path(__file__).parent / "counted.py")
STEPS = {"parameter_server": 800, "multi_worker_mirrored": 800, "mirrored": 3000, "one_device": 6000}
"""About ten seconds each: there is a middle for something to happen in."""
SEVERAL = ("parameter_server", "multi_worker_mirrored")
TRIALS = {"faults": 12, "evictions": 2, "flood": 3, "differs": 3}
"""What is done to a job, by how often: some of FAULTS; its chief is evicted; a stranger floods the chief's control
port; or one of its tasks is unlike the others."""
STRATEGIES = {"evictions": SEVERAL, "differs": ("multi_worker_mirrored",)}
"""Of the trials that not every strategy has."""
EVICTIONS = 3
PACED = ("evictions", "flood")
PACED_STEPS, NAP = 600, 4000
"""Steps of a job that is to last for a trial, or whose faults are to meet its steps, and the microseconds for which
each sleeps twice: five seconds at least."""
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


def trial(draw: random.Random) -> str:
    return draw.choices([*TRIALS], [*TRIALS.values()])[0]


def job(draw: random.Random, of_trial: str = "faults") -> dict[str, Any]:
    strategy = draw.choice(STRATEGIES.get(of_trial, [*STEPS]))
    several = strategy in SEVERAL
    # A job that starts four times is as small as there are.
    replicas, ps = ([2], [1]) if of_trial == "evictions" else ([2, 2, 3], [1, 1, 2])
    tasks: dict[str, Any] = {"worker": {"replicas": draw.choice(replicas) if several else 1}}
    if strategy == "mirrored" or (strategy == "multi_worker_mirrored" and draw.random() < 0.2):
        tasks["worker"]["cpu_devices"] = 2
    if strategy == "parameter_server":
        tasks["ps"] = draw.choice(ps)
    if draw.random() < 0.15:
        tasks["evaluator"] = 1
    unlisted = of_trial != "differs" and draw.random() < 0.5
    # A batch that float16 skips runs the code that counts steps, and is no step.
    precision = draw.choice(["none", "none", "bfloat16" if unlisted else "float16", "bfloat16"])
    settings: dict[str, Any] = {
        "batch_norm": draw.random() < 0.4,
        "generator": draw.random() < 0.3 and of_trial != "differs",
        "fork": draw.random() < 0.2,
        "overflow": precision == "float16" and draw.random() < 0.5,
    }
    train = {
        "steps": STEPS[strategy],
        "batch_size": draw.choice([8, 16, 32]),
        "optimizer": "sgd",
        "learning_rate": 1.0,
        "mixed_precision": precision,
        "checkpoint_steps": draw.choice([37, 100, 250]),
        "log_steps": draw.choice([50, 100]),
        "seed": draw.randrange(1000),
    }
    if unlisted:
        settings |= {"unlisted": True, "at_the_top": strategy != "parameter_server"}
        train["steps_per_epoch"] = draw.choice([100, 200])
    if unlisted or of_trial in PACED:
        settings["nap"] = NAP
        train["steps"] = PACED_STEPS
    if of_trial == "evictions":
        train["checkpoint_steps"] = 37  # so that there are steps to lose, and others to keep
    if of_trial == "differs":
        unlike = f"worker:{draw.randrange(tasks['worker']['replicas'])}"
        settings |= {"differs": draw.choice(["examples", "layers"]), "unlike": unlike}
        train["log_steps"] = 1  # a step would leave a line
    return {
        "name": "soak",
        "strategy": strategy,
        "workload": WORKLOAD,
        "settings": settings,
        "tasks": tasks,
        "train": train,
        "warm_standby": draw.random() < 0.3,
        "deadlines": {"start": 90, "rejoin": 90, "hang": 20, "progress": 60, "chief_lost": 60},
    }


def faults(draw: random.Random, tasks: list[str], allowed: tuple[str, ...], *, paced: bool = False) -> list[Fault]:
    """One to three of them, from the first steps of a job that is paced, of others from the forming of the cluster."""
    found = []
    for i in range(draw.choice([1, 1, 2, 3])):
        kind = draw.choice(allowed)
        after = draw.uniform(0, 4 if paced else 10) if i == 0 else draw.choice([0.0, draw.uniform(0, 6)])
        seconds = (
            draw.uniform(-7200, 7200) if kind == "clock" else draw.choice([draw.uniform(1, 9), draw.uniform(9, 40)])
        )
        found.append(Fault(kind, draw.choice(tasks), after, seconds))
    return found


def evictions(draw: random.Random, chief: str) -> list[Fault]:
    """Each comes so long after the first steps of a life of the chief.

    SIGTERM to the chief would stop the whole job, and each task would have to be started again.
    """
    return [Fault("kill supervisor", chief, draw.uniform(0.2, 1), 0) for _ in range(EVICTIONS)]
