"""One task on a GPU compared with a plain tf.function, and two tasks that share it.

Without a GPU there is nothing to measure: only the smoke run, on a core, shows that it runs.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable

from bench import run
from bench.run import Process, Steps
from tests.tools.harness import gpus

BATCH = 1024
PLAIN = "plain tf.function"
SHARED = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}  # the first of two tasks would take all of its memory
XLA = {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"}


def contenders(batch: int, asked: int) -> dict[str, Callable[[Steps], float]]:
    def ours(steps: Steps, workers: int = 1, precision: str = "none", environ: dict[str, str] | None = None) -> float:
        strategy = "one_device" if workers == 1 else "multi_worker_mirrored"
        train = {"batch_size": batch, "mixed_precision": precision}
        tasks = {"worker": {"replicas": workers, "cpu": 1, "gpus": asked}}
        return run.ours(strategy, workers, steps, environ=environ, tasks=tasks, train=train)

    plain = [sys.executable, str(run.PEERS / "plain_loop.py")]
    return {
        PLAIN: lambda steps: run.figures([Process([*plain, *steps.words], {"BATCH": str(batch)}, 0)]),
        "trainer": ours,
        "trainer, mixed_bfloat16": lambda steps: ours(steps, precision="bfloat16"),
        "trainer, XLA": lambda steps: ours(steps, environ=XLA),
        "trainer, two tasks on one GPU": lambda steps: ours(steps, workers=2, environ=SHARED),
    }


def measure(turns: int, smoke: bool) -> dict[str, list[float]]:
    """Examples per second by contender; nothing where there is no GPU."""
    there = gpus()
    if not there and not smoke:
        return {}
    known = contenders(16 if smoke else BATCH, min(there, 1))
    if smoke and not there:  # what else is there runs in the smoke of throughput
        known = {name: known[name] for name in (PLAIN, "trainer, XLA")}
    steps = Steps(10, 10) if smoke else Steps(100, 1000)
    rates: dict[str, list[float]] = {name: [] for name in known}
    for turn in range(1 if smoke else turns):
        for name, contender in known.items():
            rates[name].append(contender(steps))
            print(f"  {turn + 1} {name}: {rates[name][-1]:.0f} examples/s", flush=True)
    return rates


def table(rates: dict[str, list[float]]) -> list[str]:
    if not rates:
        return ["No GPU here: a plain tf.function, mixed precision, XLA and two tasks on one GPU were not measured."]
    lines = [f"| examples/s, CNN, batch {BATCH}, {gpus()} GPU | median | min to max | of plain |", "|---|---|---|---|"]
    for name, values in rates.items():
        of_plain = statistics.median(own / plain for own, plain in zip(values, rates[PLAIN], strict=True))
        lines.append(f"| {name} | {run.spread(values)} | {of_plain:.2f} |")
    return lines
