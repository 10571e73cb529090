"""A job as its page's server tells it, without a job: the same document each time, and what a test sends after it."""

from __future__ import annotations

import math
import random
from typing import Any

NOW = 1795564800.0
STARTED = NOW - 800
SLOW = "worker:1"
LOST = "worker:2"
WHY = "its steps wait 32 ms for data, the others' 2 ms"

Document = dict[str, Any]


def document(workers: int = 3) -> Document:
    """A job of a chief, `workers` workers and an evaluator after 800 s: worker:1 waits for its data, worker:2 was lost
    once."""
    names = ["chief:0", *(f"worker:{index}" for index in range(workers))]
    dice = random.Random(19)
    points = 160 if workers < 50 else 40
    times = [STARTED + 20 + 780 * (at + 1) / points for at in range(points)]
    tasks = {name: task(name, times, dice) for name in names}
    total = [sum(tasks[name]["examples_per_second"][at] for name in names) for at in range(points)]
    return {
        "version": 2,
        "now": NOW,
        "live": True,
        "status": status(names, tasks),
        "job": {"spec": spec(workers), "tf_config": configs(names[:8]), "started": STARTED},
        "eta": 1170.0,
        "goodput": 0.93,
        "history": {"job": job(times, total, dice), "tasks": tasks, "marks": marks()},
    }


def job(times: list[float], total: list[float], dice: random.Random) -> Document:
    loss = [2.2 * math.exp(-4 * at / len(times)) + 0.06 + dice.gauss(0, 0.015) for at in range(len(times))]
    scored = [at % 20 == 19 for at in range(len(times))]
    return {
        "time": times,
        "step": [int(3000 * (time - STARTED - 20) / 780) for time in times],
        "loss": loss,
        "examples_per_second": total,
        "metrics": {"accuracy": [1 - each / 2.6 for each in loss]},
        "scores": {
            "accuracy": [1 - each / 2.4 if there else None for each, there in zip(loss, scored, strict=True)],
            "loss": [each * 1.08 if there else None for each, there in zip(loss, scored, strict=True)],
        },
    }


def task(name: str, times: list[float], dice: random.Random) -> Document:
    slow = name == SLOW
    away = [name == LOST and STARTED + 390 < time < STARTED + 420 for time in times]

    def series(middle: float, by: float) -> list[float | None]:
        return [None if gone else max(0.0, dice.gauss(middle, by)) for gone in away]

    return {
        "time": times,
        "step": [int(3000 * (time - STARTED - 20) / 780) for time in times],
        "examples_per_second": [each or 0.0 for each in series(690 if slow else 1010, 25)],
        "input": series(0.71 if slow else 0.06, 0.01),
        "compute": series(0.22 if slow else 0.33, 0.01),
        "wait": series(0.01 if slow else 0.55, 0.005),
        "network": series(0.05, 0.005),
        "between": series(0.01, 0.001),
        "cpu": series(0.4 if slow else 0.9, 0.03),
        "memory": series(7.4e8, 4e6),
        "received": series(4.1e6, 1e5),
        "sent": series(4.0e6, 1e5),
    }


def status(names: list[str], tasks: Document) -> Document:
    def row(name: str) -> Document:
        figures = {"examples_per_second": tasks[name]["examples_per_second"][-1], "loss": 0.104}
        shares = {part: tasks[name][part][-1] for part in ("input", "compute", "wait", "network", "between")}
        return {
            "step": 3000,
            "figures": figures,
            "shares": shares,
            "pid": 4100,
            "child_pid": 4101,
            "state": "running",
            "generation": 2,
            "restarts": 0,
        }

    rows = {name: row(name) for name in names}
    rows["evaluator:0"] = {"pid": 4100, "state": "running", "generation": 2, "restarts": 0, "step": 2800, "figures": {}}
    return {
        "job": "mnist-mwms",
        "task": "chief:0",
        "strategy": "multi_worker_mirrored",
        "phase": "running",
        "generation": 2,
        "step": 3000,
        "steps": 7500,
        "figures": {"loss": 0.0678, "examples_per_second": 3720.0},
        "checkpoints": 7,
        "seconds_saving": 2.1,
        "last_checkpoint": 2800,
        "checkpoint_time": NOW - 52,
        "checkpoint_bytes": 4_210_000,
        "waiting_for": None,
        "seconds": NOW - STARTED,
        "events": [],
        "tasks": rows,
        "end": None,
        "straggler": {"task": SLOW, "cause": "input", "text": f"{SLOW} is slow: {WHY}"},
        "hangs": [],
        "warnings": [],
        "seconds_left": 1170.0,
        "goodput": 0.93,
        "version": 2,
    }


def marks() -> list[Document]:
    def mark(after: float, kind: str, text: str, **more: object) -> Document:
        return {"time": STARTED + after, "kind": kind, "text": text, "task": None, **more}

    saved = [
        mark(100 * n + 48, "checkpoint", f"step {400 * n}", step=400 * n, bytes=4_210_000, seconds=0.25 + n / 50)
        for n in range(1, 8)
    ]
    others = [
        mark(20, "formed", "generation 1 formed: 5 tasks", generation=1),
        mark(60, "slow", f"{SLOW} is slow: {WHY}", task=SLOW),
        mark(391, "lost", f"{LOST}: its child was killed by SIGKILL", task=LOST),
        mark(419, "formed", "generation 2 formed: 5 tasks, from step 1200", generation=2, step=1200),
        mark(560, "score", "step 2000: accuracy 0.951", step=2000, task="evaluator:0"),
    ]
    return sorted([*saved, *others], key=lambda each: float(str(each["time"])))


def spec(workers: int) -> Document:
    return {
        "name": "mnist-mwms",
        "strategy": "multi_worker_mirrored",
        "workload": "mnist",
        "tasks": {"chief": {"replicas": 1}, "worker": {"replicas": workers}, "evaluator": {"replicas": 1}},
        "train": {"steps": 7500, "batch_size": 50, "learning_rate": 1e-4, "checkpoint_steps": 400},
    }


def configs(names: list[str]) -> Document:
    cluster = {"chief": ["127.0.0.1:10000"], "worker": [f"127.0.0.1:{10001 + at}" for at in range(len(names) - 1)]}
    split = [name.split(":") for name in names]
    return {
        f"{kind}:{index}": {"cluster": cluster, "task": {"type": kind, "index": int(index)}} for kind, index in split
    }


def lines(count: int = 400) -> list[Document]:
    """Of a log."""
    names = ["chief:0", "worker:0", "worker:1", "worker:2", "evaluator:0"]
    return [
        {
            "n": at + 1,
            "time": STARTED + 2 * at,
            "task": names[at % len(names)],
            "text": f"step {at * 7}/7500 loss={2.2 / (1 + at / 40):.4g} examples_per_second={3700 + at % 90}",
        }
        for at in range(count)
    ]
