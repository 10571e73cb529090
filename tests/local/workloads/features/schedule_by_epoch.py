"""LearningRateScheduler, and a callback of one's own with hooks of epochs and batches"""

from __future__ import annotations

from typing import Any

import keras
from common import compiled, data, network

__all__ = ["data", "model"]
SPEC = {"train": {"epochs": 10}}


def model() -> Any:
    return compiled(network(keras.layers.Dense(16, "relu")), keras.optimizers.SGD(0.1))


class Smaller(keras.callbacks.Callback):  # type: ignore[misc]
    """Halves the rate after the 70th step."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.steps = 0

    def get_state(self) -> int:
        return self.steps

    def set_state(self, state: int) -> None:
        self.steps = state

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1
        if self.steps == 70:
            self.model.optimizer.learning_rate = float(self.model.optimizer.learning_rate) / 2


def callbacks() -> list[Any]:
    return [keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9 if epoch else rate), Smaller()]
