"""Runs of a job of two workers that keep its weights, whose figure on the test data is computed afterwards."""

from __future__ import annotations

import importlib
import itertools
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bench import marks, run
from bench.marks import Mark
from bench.run import Process, Steps
from bench.throughput import PS, WORKERS
from tests.tools.harness import TRAINER
from trainer.job import load
from trainer.workloads import datasets
from trainer.workloads.workload import Shard

KEEP_STEPS = 30
"""Of two workers in sync. A multiple of all rounds, at whose end all replicas have the same weights."""
LEARNING_RATE = 1e-3
LOG_STEPS, PART = 10, 500


class Run(NamedTuple):
    """Of which only the weights after multiples of KEEP_STEPS are known."""

    figure: Callable[[int], float]
    """From a step of both workers to the share of the test data that the weights are right in."""
    seconds: float
    """Of a step of both workers."""


@contextmanager
def trained(network: str, strategy: str, communication: Mapping[str, Any], steps: int, seed: int) -> Iterator[Run]:
    """A job on this machine, worker i on core i.

    Args:
        network: a module of bench/networks.
        steps: of both workers together, a multiple of KEEP_STEPS.
    """
    factor = WORKERS if strategy == PS else 1  # there a step is one worker's
    last = (steps + LOG_STEPS) * factor  # a line after the last weights shows that these are written
    with tempfile.TemporaryDirectory() as folder:
        model_dir = Path(folder)
        spec = run.spec(
            strategy, WORKERS, Steps(LOG_STEPS * factor, last - LOG_STEPS * factor),
            train={"learning_rate": LEARNING_RATE, "seed": seed, "steps_per_epoch": last},
            workload=str(Path(__file__).parent / "networks" / f"{network}.py"),
            settings={"keep_steps": KEEP_STEPS * factor}, communication=communication, model_dir=folder,
        )  # fmt: skip
        with run.cluster(load.build(spec)) as tasks:
            cores = [task.index if task.type == "worker" else None for task, _ in tasks]
            wanted = [Process([*TRAINER, "task"], own, core) for (_, own), core in zip(tasks, cores, strict=True)]
            with marks.started(wanted, model_dir) as found:
                lines = [found.next()]
                while lines[-1].step < last:
                    lines.append(found.next())
        module = importlib.import_module(f"bench.networks.{network}")
        yield Run(
            lambda step: _figure(module, model_dir / "kept" / f"{step * factor:06d}.weights.h5"),
            seconds_per_step(lines) * factor,
        )


def seconds_per_step(lines: Sequence[Mark]) -> float:
    """The median of the windows between two lines: some include the writing of weights. The first line has the tracing
    of the graph before it."""
    return statistics.median((b.time - a.time) / (b.step - a.step) for a, b in itertools.pairwise(lines))


def _figure(module: ModuleType, weights: Path) -> float:
    model, x, y = _test_of(module)
    model.load_weights(weights)
    parts = [model(x[i : i + PART], training=False) for i in range(0, len(x), PART)]
    return float((np.concatenate([np.argmax(part, -1) for part in parts]) == y).mean())


@cache
def _test_of(module: ModuleType) -> tuple[Any, npt.NDArray[Any], npt.NDArray[Any]]:
    """A model of the network, and its test data."""
    if hasattr(module, "data"):
        return (module.model(), *module.data(Shard("test")))
    arrays = datasets.load(module.DATASET, None)
    return module.model(), arrays["x_test"], arrays["y_test"]
