"""Distributed TensorFlow training that deploys: one job spec, real processes, containers and pods."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # typing's own takes milliseconds to import
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.3.0"

_LAZY = {
    "Exit": "trainer.job.errors",
    "Job": "trainer.api.job",
    "JobFailed": "trainer.api.run",
    "Result": "trainer.api.result",
    "Run": "trainer.api.run",
    "TrainerError": "trainer.job.errors",
    "UserError": "trainer.job.errors",
    "attach": "trainer.api.run",
    "batched": "trainer.workloads.batched",
    "data": "trainer.workloads.places",
    "files": "trainer.workloads.files",
    "jobs": "trainer.api.run",
    "load": "trainer.api.job",
    "report": "trainer.reporting",
    "watch": "trainer.api.watch",
}
"""What users have as trainer.NAME, and its module: importing trainer imports nothing heavy. The types are in the file
__init__.pyi."""


def __getattr__(name: str) -> Any:
    if name == "keras":
        return importlib.import_module("trainer.keras")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "keras"})
