"""The synchronous loop in this process, with callbacks, and Keras' own fit of the same model and batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.unit.training.jobs import setup
from trainer.protocol import events
from trainer.training.loops import sync
from trainer.training.model.state import build_state
from trainer.training.outputs.finish import Trained
from trainer.training.runtime.channel import Channel
from trainer.training.task import TrainingTask

Make = Callable[[Path], list[Any]]
"""From a folder for files to callbacks."""


class RecordingChannel(Channel):
    """A channel without a supervisor."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.events: list[events.Event] = []

    def send(self, event: events.Event) -> None:
        self.events.append(event)

    @property
    def lines(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, events.Line)]


def network() -> Any:
    return keras.Sequential(
        [
            keras.Input((8, 8), dtype="uint8"),
            keras.layers.Rescaling(1 / 16),
            keras.layers.Flatten(),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def compiled(rate: Any = 0.01) -> Any:
    model = network()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(rate), loss=loss, metrics=["accuracy"])
    return model


def job_of(folder: Path, make: Make | None, model: Callable[[], Any] = compiled, **train: Any) -> TrainingTask:
    """Of digits, in epochs of 20 steps; a tenth of the data validates."""
    train = {"batch_size": 64, "validation_split": 0.1, "epochs": 8, **train}
    job = setup(train=train, model_dir=str(folder / "run"))
    callbacks = None if make is None else lambda: make(folder)
    return replace(job, workload=replace(job.workload, model=model, callbacks=callbacks))


def train(
    job: TrainingTask, resume_step: int = 0, channel: RecordingChannel | None = None
) -> tuple[Trained, Any, RecordingChannel]:
    """Runs the loop; returns how it ended, the trained model and what it sent."""
    channel, strategy = channel or RecordingChannel(), tf.distribute.get_strategy()
    state = build_state(job)
    ended = sync._run(strategy, job, state, resume_step, channel)
    return ended, state.model, channel


def fit(job: TrainingTask, callbacks: Sequence[Any]) -> Any:
    """Keras' own fit of a compiled model, on the same batches; returns the model."""
    keras.utils.set_random_seed(job.spec.train.seed)
    model = job.workload.model()
    steps = job.steps_in_epoch(job.training)
    model.fit(
        job.training.batches(job.part),
        steps_per_epoch=steps,
        epochs=job.total_steps(job.training) // steps,
        validation_data=job.validation(),
        shuffle=False,
        callbacks=list(callbacks),
        verbose=0,
    )
    return model


class Recorder(keras.callbacks.Callback):  # type: ignore[misc]
    """Records all hooks, and sets the rate at some batches."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.calls.append(("begin",))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.calls.append(("epoch begin", epoch))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("batch begin", batch))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("batch end", batch, logs["loss"], logs["accuracy"]))
        if batch == 7:
            optimizer = self.model.optimizer
            optimizer.learning_rate = float(np.array(optimizer.learning_rate.value)) * 0.5

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.calls.append(("epoch end", epoch, logs["loss"], logs["val_loss"]))
        if epoch == 2:
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        self.calls.append(("end", logs["loss"]))
