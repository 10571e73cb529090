"""The argument of a workload's fit() under `api: keras_fit`: the arguments of Keras' fit that depend on the job."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.workloads.types import Callback, Dataset, Model


@dataclass(frozen=True)
class Fit:
    """Arguments for `model.fit`, the same on every task."""

    train: Dataset
    """Endless batches, sharded by task: the argument x of fit."""
    steps_per_epoch: int
    epochs: int
    initial_epoch: int
    """Epoch of the last checkpoint, whose values the model already has."""
    job_callbacks: tuple[Callback, ...]
    is_chief: bool

    def callbacks(self, *own: Callback) -> list[Callback]:
        """The job's callbacks, which save and report, and your own; those that write files run on the chief only."""
        return [*self.job_callbacks, *(each for each in own if self.is_chief or not _writes(each))]


_WRITERS = ("BackupAndRestore", "CSVLogger", "ModelCheckpoint", "TensorBoard")
"""Callbacks of Keras that on two tasks destroy each other's files in one folder (backup_and_restore.py)."""


def _writes(callback: Callback) -> bool:
    return any(kind.__name__ in _WRITERS for kind in type(callback).__mro__)


def fit(model: Model, run: Fit) -> None:
    """The default fit() of a workload."""
    model.fit(
        run.train,
        steps_per_epoch=run.steps_per_epoch,
        epochs=run.epochs,
        initial_epoch=run.initial_epoch,
        callbacks=run.callbacks(),
        verbose=0,
    )
