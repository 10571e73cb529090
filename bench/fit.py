"""Steps per second of compiled models on one device: trainer's loop, and Keras' own fit, in turns within one process.

    python -m bench.fit [resnet50 transformer] [--turns N]        a table of both
    python -m bench.fit --memory                                  resident memory over 10,000 steps of the loop

Both train their own copy of a model on the same Dataset, with the same threads. The loop makes ten steps in a call, its
default; fit makes one in each.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from trainer.job.cluster import tasks_of
from trainer.job.load import build
from trainer.training.loops import sync
from trainer.training.loops.position import Position
from trainer.training.loops.rounds import Rounds
from trainer.training.model import batches
from trainer.training.model.state import build_state, prepare
from trainer.training.model.step import make_step
from trainer.training.task import TrainingTask
from trainer.workloads.load import load_workload

CLASSES, WORDS, LENGTH, WIDTH = 10, 8000, 64, 256
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def resnet50() -> Any:
    network = keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3), classes=CLASSES)
    network.compile(
        keras.optimizers.SGD(0.01, momentum=0.9), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return network


def transformer() -> Any:
    """Ten million parameters."""
    words = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, WIDTH)(words)
    for _ in range(7):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, WIDTH // 4)(x, x, use_causal_mask=True))
        x = layers.LayerNormalization()(x + layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, activation="gelu")(x)))
    network = keras.Model(words, layers.Dense(WORDS)(x))
    rate = keras.optimizers.schedules.CosineDecay(0.0, 10_000, warmup_target=1e-3, warmup_steps=100)
    network.compile(keras.optimizers.AdamW(rate, global_clipnorm=1.0), loss=LOSS, metrics=["accuracy"])
    return network


def small() -> Any:
    network = keras.Sequential([keras.Input((16,)), layers.Dense(32, activation="relu"), layers.Dense(CLASSES)])
    network.compile("adam", loss=LOSS, metrics=["accuracy"])
    return network


generator = np.random.default_rng(0)
# Each: model, batch size, steps of a turn, examples.
MODELS: dict[str, tuple[Callable[[], Any], int, int, tuple[Any, Any]]] = {
    "resnet50": (
        resnet50, 16, 20,
        (generator.normal(size=(320, 32, 32, 3)).astype("float32"), generator.integers(0, CLASSES, 320)),
    ),
    "transformer": (
        transformer, 4, 20,
        (generator.integers(0, WORDS, (80, LENGTH)), generator.integers(0, WORDS, (80, LENGTH))),
    ),
    "small": (
        small, 32, 1000,
        (generator.normal(size=(640, 16)).astype("float32"), generator.integers(0, CLASSES, 640)),
    ),
}  # fmt: skip


def loop(name: str) -> Callable[[int], object]:
    """Makes that many steps, as under one_device."""
    make, batch, _, data = MODELS[name]
    spec = build({"name": "j", "strategy": "one_device", "workload": "digits", "train": {"batch_size": batch}})
    digits = load_workload(spec)
    examples = tf.data.Dataset.from_tensor_slices(data)
    job = TrainingTask(spec, tasks_of(spec)[0], replace(digits, model=make, data=lambda shard: examples), None)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        state = build_state(job)
        prepare(strategy, job, state, job.training)
        made = make_step(strategy, job, state, batches.replica_spec(job, job.training))
        rounds = Rounds(strategy, job.ring, spec, state)
    iterator = iter(batches.synchronous(strategy, job, job.training, 0))
    channel: Any = SimpleNamespace(send=lambda event: None, stopping=threading.Event())
    graphs = sync._make_graphs(strategy, job, state, made, channel, Position(channel, 0))
    call = sync._make_call(job, graphs, iterator, rounds)
    per_call = spec.train.steps_per_call

    def run(steps: int) -> object:
        return [made.figures(call(0, per_call, 0.0).sums, per_call) for _ in range(steps // per_call)]

    return run


def fit(name: str) -> Callable[[int], object]:
    make, batch, _, data = MODELS[name]
    keras.utils.set_random_seed(0)
    model = make()
    dataset = tf.data.Dataset.from_tensor_slices(data).repeat().batch(batch, drop_remainder=True).prefetch(2)
    return lambda steps: model.fit(dataset, steps_per_epoch=steps, epochs=1, verbose=0)


def rates(name: str, turns: int) -> list[list[tuple[float, float]]]:
    """Steps per second, and per second of CPU time, of each turn: the loop's, and fit's; which goes first alternates.

    The second says more on a machine that others use too.
    """
    steps, runs = MODELS[name][2], (loop(name), fit(name))
    found: list[list[tuple[float, float]]] = [[], []]
    for run in runs:
        run(10)  # traces
    for turn in range(turns):
        for which in ((0, 1), (1, 0))[turn % 2]:
            begun, worked = time.perf_counter(), time.process_time()
            runs[which](steps)
            found[which].append((steps / (time.perf_counter() - begun), steps / (time.process_time() - worked)))
    return found


def resident() -> float:
    """MB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fit", description="see bench/fit.py")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; default all")
    parser.add_argument("--turns", type=int, default=5, help="of each (5)")
    parser.add_argument("--memory", action="store_true", help="measure memory instead")
    arguments = parser.parse_args()
    if arguments.memory:
        run = loop("small")
        for thousand in range(1, 11):
            run(1000)
            print(f"{thousand * 1000:>6} steps: {resident():.1f} MB", flush=True)
        return
    print("| steps/s on one device | loop | Keras' fit | loop / fit, median (least to most) | by CPU time |")
    print("|---|---|---|---|---|")
    for name in arguments.models or MODELS:
        ours, theirs = rates(name, arguments.turns)
        medians = [statistics.median(wall for wall, _ in each) for each in (ours, theirs)]
        by_wall, by_cpu = (sorted(a[i] / b[i] for a, b in zip(ours, theirs, strict=True)) for i in (0, 1))
        reported = [f"{statistics.median(each):.2f} ({each[0]:.2f} to {each[-1]:.2f})" for each in (by_wall, by_cpu)]
        print(f"| {name} | {medians[0]:.1f} | {medians[1]:.1f} | {reported[0]} | {reported[1]} |", flush=True)


if __name__ == "__main__":
    main()
