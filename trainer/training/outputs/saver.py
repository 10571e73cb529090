"""Writes checkpoints while training continues."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from trainer.job.errors import Exit, TrainerError
from trainer.model_dir import checkpoint
from trainer.protocol import events
from trainer.training.callbacks import memory
from trainer.training.channel import Channel
from trainer.training.divergence import SMALLER_RATE
from trainer.training.outputs.best import Validation, require_scored
from trainer.training.state import TrainState
from trainer.training.task import TrainingTask


class Saver:
    """Copies the variables at once and writes them in a thread, so that training continues."""

    def __init__(self, job: TrainingTask, state: TrainState, channel: Channel) -> None:
        self._job, self._state, self._channel = job, state, channel
        self._pool = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[None] | None = None
        self._key = job.compatibility_key
        self._changes = checkpoint.workload_changes(job.spec.directory, self._key)
        keep, self._validation = job.spec.keep_best, None
        if keep and job.task.is_chief:
            if keep.of_validation:
                self._validation = Validation(job, keep, channel)
            else:
                require_scored(job, keep)
        self._stalled = 0.0
        """Seconds for which training was paused."""
        self._written, self._count = 0.0, 0

    def save(
        self,
        step: int,
        values: checkpoint.Values | None = None,
        since: float | None = None,
        epochs: memory.Saved | None = None,
    ) -> None:
        """Begins a checkpoint of these values, or of the current ones, once the previous checkpoint is on disk.

        Args:
            since: time.perf_counter() when training paused for it; default: now.

        Raises:
            UserError: the previous checkpoint could not be written, or the training data has changed.
            TrainerError: Exit.DIVERGED, if a variable is not finite.
        """
        begun = since or time.perf_counter()
        self._job.require_unchanged_files()
        self.wait()
        values = self._state.values() if values is None else values
        for name, value in values.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                path = self._state.description()[name]["path"]
                raise TrainerError(f"variable {path} is not finite at step {step}; {SMALLER_RATE}", Exit.DIVERGED)
        self._stalled += time.perf_counter() - begun
        self._pending = self._pool.submit(self._write, step, values, epochs)
        if self._validation:
            self._validation.take(step, values, self._state.description())

    def wait(self) -> None:
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def _write(self, step: int, values: checkpoint.Values, epochs: memory.Saved | None) -> None:
        spec, begun = self._job.spec, time.perf_counter()
        description = self._state.description()
        meta: dict[str, object] = {
            "compatibility_key": self._key,
            "workload_changed_after": self._changes,
            "variables": description,
        }
        if epochs is not None:
            meta["epochs"] = epochs.epochs
            values = values | epochs.arrays
        checkpoint.save(spec.directory, step, values, meta)
        checkpoint.prune(spec.directory, spec.train.keep_checkpoints)
        self._written += time.perf_counter() - begun
        self._count += 1
        saved = events.Saved(step, self._stalled, written=self._written, checkpoints=self._count)
        self._channel.send(saved)
