"""`make bench-large`: checkpoints of models with 22 and 250 million parameters, and how fast large models train.

    python -m bench.large [--turns N] [--only checkpoints rates ps]

Each turn of the checkpoints is a process of its own, which trains with a table of rows and three layers on one CPU
device, and saves while it trains. `peak` and `stays` are shares of what model and optimizer have; a process that has
imported TensorFlow and has no model is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import large_rates, namespaces, section

SIZES = {"22M": (160_000, 20, 6_000), "250M": (4_000_000, 40, 13_000)}
"""Rows and columns of the table, and units of the first layer; the second has half of them."""
BATCH = 16
SAVES = 2
TEXTS = {
    "step_seconds": "seconds of a step: median (largest)",
    "pause_seconds": "pause of training for a checkpoint",
    "slower_seconds": "steps while it is written take longer by, together",
    "slowest_step_seconds": "the slowest of them by",
    "peak_without": "peak memory before checkpoints, of model and optimizer",
    "peak": "with checkpoints",
    "stays": "memory afterwards",
    "read_seconds": "seconds to read the file",
    "restore_seconds": "to restore it",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.large", description="see bench/large.py")
    parser.add_argument("--turns", type=int, default=3, help="of each figure (3)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="default all")
    arguments = parser.parse_args()
    known = section.read("large")
    if "ps" in arguments.only and (why := namespaces.problem()) is not None:
        sys.exit(f"bench-large: {why}; or leave ps out with --only")
    for part in arguments.only:
        known[part] = PARTS[part](arguments.turns)
    print("\n".join(table(known)))
    section.write("large", known, table)


def table(figures: dict[str, Any]) -> list[str]:
    return [
        *(_checkpoints(figures["checkpoints"]) if "checkpoints" in figures else []),
        *(large_rates.table(figures["rates"]) if "rates" in figures else []),
        *(large_rates.ps_text(figures["ps"]) if "ps" in figures else []),
    ]


def _checkpoints(figures: dict[str, dict[str, list[float]]]) -> list[str]:
    heads = list(next(iter(figures.values())))
    lines = [f"| parameters | {' | '.join(TEXTS[name] for name in heads)} |", "|---" * (1 + len(heads)) + "|"]
    for size, each in figures.items():
        cells = [f"{statistics.median(each[name]):.2f} ({max(each[name]):.2f})" for name in heads]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return [*lines, ""]


def measure(turns: int) -> dict[str, dict[str, list[float]]]:
    """By size the figures of all turns."""
    found: dict[str, dict[str, list[float]]] = {size: defaultdict(list) for size in SIZES}
    for _ in range(turns):
        for size, figures in found.items():
            command = [sys.executable, "-m", "bench.large", "one", size]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
            for name, values in json.loads(ended.stdout.splitlines()[-1]).items():
                figures[name] += values
    return found


def one(size: str) -> dict[str, list[float]]:
    """The figures of one process."""
    import numpy as np
    import tensorflow as tf

    from bench.networks import wide
    from tests.unit.training import jobs
    from tests.unit.training.callbacks.loop import RecordingChannel
    from trainer.model_dir import checkpoint
    from trainer.training.model.state import build_state
    from trainer.training.outputs.saver import Saver
    from trainer.training.weights.restore import restore

    found = defaultdict[str, list[float]](list)
    with tempfile.TemporaryDirectory() as folder:
        job = jobs.setup(model_dir=folder)
        job = replace(job, workload=replace(job.workload, model=lambda: wide.wide(*SIZES[size])))
        before = _resident("VmRSS")
        state = build_state(job)
        whole = 4 * sum(int(np.prod(v.shape)) for _, v in state.variables)
        saver = Saver(job, state, RecordingChannel())
        step = _make_step(state, SIZES[size][0])
        _seconds(step)
        found["step_seconds"] = usual = [_seconds(step) for _ in range(7)]
        while not saver._memory._made.done():
            step()
        found["peak_without"] = [(_resident("VmHWM") - before) / whole]
        for i in range(SAVES):
            found["pause_seconds"].append(_seconds(lambda at=i + 1: saver.save(at)))  # type: ignore[misc]
            slower = []
            while saver._pending is not None and not saver._pending.done():
                slower.append(_seconds(step) - statistics.median(usual))
            saver.wait()
            found["slower_seconds"].append(sum(slower))
            found["slowest_step_seconds"].append(max(slower, default=0.0))
        found["peak"] = [(_resident("VmHWM") - before) / whole]
        found["stays"] = [(_resident("VmRSS") - before) / whole]
        file = checkpoint.folder(folder) / checkpoint.name(SAVES) / checkpoint.ARRAYS
        for _ in range(2):
            found["read_seconds"].append(_seconds(file.read_bytes))
            found["restore_seconds"].append(_seconds(lambda: restore(tf.distribute.get_strategy(), job, state, 1000)))
    return found


def _make_step(state: Any, rows: int) -> Callable[[], object]:
    import keras
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x = tf.constant(rng.integers(0, rows, (BATCH, *state.model.input_shape[1:])), tf.int32)
    y = tf.constant(rng.integers(0, 10, BATCH))

    @tf.function(autograph=False)
    def step() -> Any:
        variables = state.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, state.model(x), from_logits=True))
        state.optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)
        return loss

    return lambda: step().numpy()


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _resident(which: str) -> int:
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(f"{which}:"))
    return int(line.split()[1]) << 10


PARTS: dict[str, Callable[[int], Any]] = {
    "checkpoints": measure,
    "rates": lambda turns: large_rates.measure(turns, [*large_rates.BATCHES]),
    "ps": large_rates.measure_ps,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(one(sys.argv[2])))
    else:
        main()
