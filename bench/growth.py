"""Weak scaling: more workers, each with its own 64 examples, on the same cores; and their network traffic."""

from __future__ import annotations

import os
from pathlib import Path

from bench import run
from bench.run import Steps

MODEL_BYTES = 4 * 1_663_370
"""Of the gradients of `workload: mnist`, float32."""


def measure(_turns: int, smoke: bool) -> list[dict[str, float]]:
    """For each number of workers: examples per second of all; what one of them takes and sends per step.

    Once: eight workers on two cores take a minute, and what is looked for is larger than the spread.
    """
    steps, workers = (Steps(10, 10), (1, 2)) if smoke else (Steps(10, 30), (1, 2, 4, 8))
    rows = []
    for count in workers:
        rows.append({"workers": count, **_one(count, steps)})
        print(f"  {rows[-1]}", flush=True)
    return rows


def _one(workers: int, steps: Steps) -> dict[str, float]:
    sent: list[int] = []
    # Nothing else here talks over the loopback; counted from the first record on, when the cluster has formed.
    rate = run.ours("multi_worker_mirrored", workers, steps, seen=lambda _: sent.append(_loopback_bytes()))
    cores = min(workers, len(os.sched_getaffinity(0)))
    return {
        "examples_per_second": rate,
        "core_milliseconds": 1000 * cores * run.BATCH / rate,
        "bytes": (sent[-1] - sent[0]) / steps.measured / workers,
    }


def table(rows: list[dict[str, float]]) -> list[str]:
    lines = [
        "| MWMS | examples/s | of one worker's | CPU per worker and step | sent per worker and step |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        rate, count = row["examples_per_second"], row["workers"]
        lines.append(
            f"| {count} worker{'s' * (count > 1)} | {rate:.0f} | {rate / rows[0]['examples_per_second']:.2f} "
            f"| {row['core_milliseconds']:.0f} ms | {row['bytes'] / MODEL_BYTES:.2f} of the gradients' bytes |"
        )
    return lines


def _loopback_bytes() -> int:
    """Sent so far over the loopback interface (proc(5), net/dev: the ninth figure)."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return int(next(line for line in lines if line.strip().startswith("lo:")).partition(":")[2].split()[8])
