"""Examples per second beside threads of Python, with trainer's ring and with TensorFlow's, in turns."""

from __future__ import annotations

import statistics

from bench import intervals, run
from bench.run import Steps
from bench.throughput import MWMS, WORKERS

BESIDE = {"none": "nothing", "generator": "a generator in data()", "thread": "a thread that is always busy"}
RINGS = ("auto", "ring")


def measure(turns: int, smoke: bool) -> dict[str, dict[str, list[float]]]:
    """By what runs beside it, by `communication.implementation`: examples per second of each turn."""
    turns, steps = (1, Steps(10, 10)) if smoke else (turns, Steps(40, 160))
    rates: dict[str, dict[str, list[float]]] = {beside: {ring: [] for ring in RINGS} for beside in BESIDE}
    for turn in range(turns):
        for beside, found in rates.items():
            for ring in RINGS:
                found[ring].append(_rate(beside, ring, steps))
                print(f"  {turn + 1}/{turns} {beside}, {ring}: {found[ring][-1]:.0f} examples/s", flush=True)
    return rates


def _rate(beside: str, ring: str, steps: Steps) -> float:
    return run.ours(
        MWMS,
        WORKERS,
        steps,
        workload=str(run.ROOT / "bench" / "networks" / "beside_python.py"),
        settings={"python": beside},
        communication={"implementation": ring},
        train={"batch_size": 16},
    )


def table(rates: dict[str, dict[str, list[float]]]) -> list[str]:
    lines = [
        "| examples/s, 2 workers, batch 16 each, beside | trainer's ring | TensorFlow's ring | ratio (95 %) |",
        "|---|---|---|---|",
    ]
    for beside, found in rates.items():
        own, theirs = (f"{statistics.median(found[ring]):.0f}" for ring in RINGS)
        ratio = intervals.ratio(found["auto"], found["ring"]).text()
        lines.append(f"| {BESIDE[beside]} | {own} | {theirs} | {ratio} |")
    return lines
