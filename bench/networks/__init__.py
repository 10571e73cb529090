"""Workloads whose accuracy is measured. Each keeps its weights every `settings.keep_steps` steps."""

from __future__ import annotations

from pathlib import Path

import keras


def keep(model_dir: str, steps: int) -> list[keras.callbacks.Callback]:
    """Keras' own callback, which changes nothing of the training, and lets calls have more than one step."""
    path = Path(model_dir) / "kept" / "{batch:06d}.weights.h5"
    path.parent.mkdir(parents=True, exist_ok=True)
    return [keras.callbacks.ModelCheckpoint(str(path), save_weights_only=True, save_freq=steps)]
