"""Where the time of a step goes, by the clocks in its graph (training/exchange/step_time.py): two workers, one core."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from bench import run
from bench.run import Steps
from bench.throughput import MWMS, PS, WORKERS
from tests.tools.harness import get_json
from trainer.model_dir import layout

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "MWMS, float32": (MWMS, {}),
    "MWMS, bfloat16 gradients": (MWMS, {"gradients": "bfloat16"}),
    "MWMS, PowerSGD of rank 4": (MWMS, {"gradients": "powersgd"}),
    "MWMS, weights averaged every 10 steps": (MWMS, {"every": 10}),
    "PS, float32": (PS, {}),
}
PARTS = {
    "input": "waits for data",
    "compute": "computes",
    "exchange": "exchanges, or waits for the others",
    "wait": "between steps",
}
"""As in /status, where each is seconds_PART."""
MOST_TURNS = 3


def measure(turns: int, smoke: bool) -> dict[str, list[dict[str, float]]]:
    """By setting and turn the milliseconds of a worker's step, by part."""
    turns, steps = (1, Steps(10, 10)) if smoke else (min(turns, MOST_TURNS), Steps(20, 60))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SETTINGS}
    for turn in range(turns):
        for name, (strategy, communication) in SETTINGS.items():
            found[name].append(_one(strategy, communication, steps))
            shown = " ".join(f"{part} {milliseconds:.1f}" for part, milliseconds in found[name][-1].items())
            print(f"  {turn + 1}/{turns} {name}, ms: {shown}", flush=True)
    return found


def _one(strategy: str, communication: dict[str, Any], steps: Steps) -> dict[str, float]:
    rows: list[dict[str, Any]] = []
    run.ours(
        strategy,
        WORKERS,
        steps.times(WORKERS) if strategy == PS else steps,  # under a ps steps are the job's
        seen=lambda model_dir: rows.append(_tasks(model_dir)),
        communication=communication,
    )
    # Totals since the first call, which traced the graph; of the workers that have reported some.
    made = [row for row in rows[-1].values() if row.get("steps_made") and row.get("seconds_compute") is not None]
    return {
        part: statistics.mean(1000 * (row.get(f"seconds_{part}") or 0.0) / row["steps_made"] for row in made)
        for part in PARTS
    }


def _tasks(model_dir: Path) -> dict[str, Any]:
    port = json.loads(layout.state(model_dir).read_text())["control_port"]
    return dict(get_json(f"http://127.0.0.1:{port}/status")["tasks"])


def table(figures: dict[str, list[dict[str, float]]]) -> list[str]:
    lines = [
        f"| milliseconds of a worker's step | {' | '.join(PARTS.values())} | all |",
        f"|{'---|' * (len(PARTS) + 2)}",
    ]
    for name, turns in figures.items():
        parts = [f"{statistics.median(turn[part] for turn in turns):.1f}" for part in PARTS]
        whole = run.spread([sum(turn.values()) for turn in turns], 1).replace(" | ", " (") + ")"
        lines.append(f"| {name} | {' | '.join(parts)} | {whole} |")
    return lines
