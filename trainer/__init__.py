"""Distributed TensorFlow training that deploys: one job spec, real processes, containers and pods."""

import importlib
from typing import Any

__version__ = "0.2.0"

_LAZY = {"batched": "trainer.workloads.batched", "data": "trainer.workloads.places", "files": "trainer.workloads.files"}
"""What workload files use as trainer.NAME, and its module: importing trainer imports nothing heavy."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
