"""The learning curve: metrics.jsonl and TensorBoard event files, written by one task of the job."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainer.model_dir import layout, lease
from trainer.model_dir.files import json_object
from trainer.model_dir.regular import regular

# This lookup imports tensorboard, which takes 0.13 s: at the start of a process, not at its first step.
_scalar = tf.summary.scalar

_LONGEST_LINE = 1 << 20
Record = dict[str, Any]
"""Figures of one step by name, with `step` and `time`."""


class Curve:
    """Appends figures by step to <model_dir>/<name>.jsonl and <model_dir>/tensorboard/<name>."""

    def __init__(self, model_dir: str, name: str, resume_step: int) -> None:
        lease.require_own()  # the file of another chief's child would be replaced
        self._path = layout.curve(model_dir, name)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        _forget_after(self._path, resume_step)
        self._file = open(self._path, "a", buffering=1, opener=regular)  # noqa: SIM115
        self._writer = tf.summary.create_file_writer(str(layout.tensorboard(model_dir) / name))

    def add(self, step: int, figures: dict[str, float], **details: object) -> None:
        record = {"step": step, **figures, **details, "time": time.time()}
        self._file.write(json.dumps(record) + "\n")
        with self._writer.as_default(step=step):
            for name, value in figures.items():
                _scalar(name, value)
        self._writer.flush()


def read(path: Path) -> list[Record]:
    """The records of a curve; a line cut off by a kill is left out."""
    records = []
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace", opener=regular) as file:
        while line := file.readline(_LONGEST_LINE):
            if (record := json_object(line)) and isinstance(record.get("step"), (int, float)):
                records.append(record)
    return records


def _forget_after(path: Path, step: int) -> None:
    # Steps after the checkpoint are trained again; a curve with two values for one step would be misleading.
    if path.exists():
        kept = [record for record in read(path) if record["step"] <= step]
        temporary = path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(record) + "\n" for record in kept))
        temporary.replace(path)
