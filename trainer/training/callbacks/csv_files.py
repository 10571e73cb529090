"""Files of CSVLogger, which go on after a restart without the lines of epochs that are trained again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import keras

from trainer.model_dir import layout
from trainer.model_dir.files import read_json, write_json
from trainer.workloads.types import Callback


def go_on(lengths: Mapping[Callback, object], model_dir: str, step: int) -> list[Callback]:
    """Cuts the files of CSVLoggers to their length at `step`, from which training continues.

    Args:
        lengths: by callback, the bytes of its file in the checkpoint, if that has any.

    Returns:
        Those that append to their file for this reason.
    """
    begun, appending = dict[str, int](), list[Callback]()
    for callback, length in lengths.items():
        if not isinstance(callback, keras.callbacks.CSVLogger):
            continue
        path = Path(callback.filename)
        size = path.stat().st_size if path.exists() else 0
        if isinstance(length, int):
            callback.append = True
            appending.append(callback)
        elif callback.append:
            # No checkpoint has its length yet: an earlier start from here may have written lines.
            length = begun[str(path)] = _lengths_at(step, model_dir).get(str(path), size)
        else:
            continue
        if size > length:
            os.truncate(path, length)
    if begun:
        layout.make_own(model_dir)
        write_json(layout.csv_lengths(model_dir), {"step": step, "lengths": begun})
    return appending


def _lengths_at(step: int, model_dir: str) -> dict[str, int]:
    """Returns the lengths that files had when an earlier start from this step began."""
    begun = read_json(layout.csv_lengths(model_dir))
    lengths = begun.get("lengths") if begun.get("step") == step else None
    return lengths if isinstance(lengths, dict) else {}
