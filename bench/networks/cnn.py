"""`workload: mnist`: a CNN of 1.66 million parameters, on MNIST."""

from __future__ import annotations

from typing import Any

from bench.networks import keep
from trainer.workloads import mnist

DATASET = "mnist"
SETTINGS = {"keep_steps": 30}
model = mnist.model


def callbacks(model_dir: str) -> list[Any]:
    return keep(model_dir, SETTINGS["keep_steps"])
