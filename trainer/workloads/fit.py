"""What a workload's fit() is given under `api: keras_fit`: everything of Keras' fit that depends on the job."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.workloads.types import Callback, Dataset, Model


@dataclass(frozen=True)
class Fit:
    """Arguments for `model.fit`, the same on every task."""

    train: Dataset
    """Endless batches, sharded by task: what fit takes as x."""
    steps_per_epoch: int
    epochs: int
    initial_epoch: int
    """Where the last checkpoint was; the model has its values already."""
    job_callbacks: tuple[Callback, ...]
    is_chief: bool

    def callbacks(self, *own: Callback) -> list[Callback]:
        """The job's callbacks, which save and report, and your own; those that write files only on the chief."""
        return [*self.job_callbacks, *(each for each in own if self.is_chief or not _writes(each))]


_WRITERS = ("BackupAndRestore", "CSVLogger", "ModelCheckpoint", "TensorBoard")
"""Of Keras 3 and tf_keras: on two tasks with one folder they destroy each other's files (backup_and_restore.py)."""


def _writes(callback: Callback) -> bool:
    return any(kind.__name__ in _WRITERS for kind in type(callback).__mro__)


def fit(model: Model, run: Fit) -> None:
    """For a workload that has no fit() of its own."""
    model.fit(
        run.train,
        steps_per_epoch=run.steps_per_epoch,
        epochs=run.epochs,
        initial_epoch=run.initial_epoch,
        callbacks=run.callbacks(),
        verbose=0,
    )
