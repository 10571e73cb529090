"""What a supervisor costs a program: the same program by hand, under `trainer local`, and there with reports.

    python -m tests.bench.programs [--turns N] [--steps N]

Two workers under MultiWorkerMirroredStrategy train a small CNN with a loop of their own. Prints for each pair
of neighbours the examples per second, and the seconds from the command to the first step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml

from tests.harness import TRAINER, processes
from trainer.targets.local import ports

WORKERS, BATCH, WARM_UP = 2, 64, 20
Figures = tuple[float, float]
"""Examples per second, and seconds to the first step."""


def train(steps: int) -> None:
    """The program. It prints its figures as JSON."""
    import tensorflow as tf

    import trainer

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        layers = [
            tf.keras.layers.Conv2D(16, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
        model = tf.keras.Sequential([tf.keras.layers.InputLayer((28, 28, 1)), *layers])
        rate = 1e-3
    x = np.random.default_rng(0).normal(size=(BATCH, 28, 28, 1)).astype("float32")
    y = np.arange(BATCH) % 10

    @tf.function
    def step() -> tf.Tensor:
        def replica_step() -> tf.Tensor:
            with tf.GradientTape() as tape:
                logits = model(x)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
            gradients = tape.gradient(loss, model.trainable_variables)
            gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
            for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
                variable.assign_sub(rate * gradient)
            return loss

        return strategy.run(replica_step)

    step()
    first = time.time() - float(os.environ["BEGUN"])
    for _ in range(WARM_UP):
        step()
    begun = time.perf_counter()
    for number in range(steps):
        step()
        if os.environ.get("REPORT"):
            trainer.report(step=number, total=steps)
    seconds = time.perf_counter() - begun
    print("FIGURES " + json.dumps([WORKERS * BATCH * steps / seconds, first]), flush=True)


def by_hand(steps: int) -> Figures:
    with ports.reserve([f"worker:{i}" for i in range(WORKERS)], None) as taken:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in taken.values()]}
        environ = {**os.environ, "BEGUN": str(time.time()), "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": "-1"}
        configs = [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}}) for i in range(WORKERS)]
        commands = [([*_words(steps)], {**environ, "TF_CONFIG": config}) for config in configs]
        with processes(commands) as running:
            return _figures(running[0].communicate(timeout=300)[0])


def supervised(steps: int, report: str = "") -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "job.yaml"
        job = {
            "name": "bench",
            "strategy": "multi_worker_mirrored",
            "program": _words(steps),
            "tasks": {"worker": WORKERS},
        }
        job |= {"model_dir": f"{folder}/run", "env": {"BEGUN": str(time.time()), "REPORT": report}}
        spec.write_text(yaml.safe_dump(job))
        words = [*TRAINER, "local", str(spec), "--plain"]
        return _figures(subprocess.run(words, capture_output=True, text=True, timeout=300).stdout)


CONTENDERS: dict[str, Callable[[int], Figures]] = {
    "by hand": by_hand,
    "supervised": supervised,
    "supervised, with reports": lambda steps: supervised(steps, "1"),
}


def _words(steps: int) -> list[str]:
    return [sys.executable, str(Path(__file__).absolute()), "train", str(steps)]


def _figures(output: str) -> Figures:
    found = [line.partition("FIGURES ")[2] for line in output.splitlines() if "FIGURES " in line]
    if not found:
        raise SystemExit(output)
    rate, first = json.loads(found[0])
    return rate, first


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.programs", description="see tests/bench/programs.py")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    arguments = parser.parse_args()
    found: dict[str, list[Figures]] = {name: [] for name in CONTENDERS}
    for turn in range(arguments.turns):
        names = list(CONTENDERS)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            found[name].append(CONTENDERS[name](arguments.steps))
            print(
                f"{name}: {found[name][-1][0]:,.0f} examples/s, first step after {found[name][-1][1]:.2f} s", flush=True
            )
    hand = found["by hand"]
    for name, own in found.items():
        ratio = statistics.median(one[0] / other[0] for one, other in zip(own, hand, strict=True))
        later = statistics.median(one[1] - other[1] for one, other in zip(own, hand, strict=True))
        print(f"{name}: {ratio:.3f} of the rate by hand, first step {later:+.2f} s (medians of {len(own)} pairs)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(int(sys.argv[2]))
    else:
        main()
