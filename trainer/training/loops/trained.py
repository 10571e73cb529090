"""What a strategy's loop takes and gives, for its callers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainer.training.callbacks.hooks import Replaced
from trainer.training.task import TrainingTask


@dataclass(frozen=True)
class Trained:
    """How a loop ended."""

    step: int
    stopped: bool
    """Whether it was asked to stop, and did so before the last step."""
    pace: tuple[float, int]
    """(seconds, steps) of steady training in this generation."""
    early: str | None = None
    """Why a callback has ended the training."""
    weights: Replaced | None = None
    """Values of the model's variables that replace those of the last step."""


Train = Callable[[TrainingTask], Trained]
"""The loop of a strategy, from the newest checkpoint to the end."""
