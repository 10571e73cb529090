"""Writes checkpoints while training continues.

A checkpoint begins with a snapshot of the variables, which costs nothing (TrainState.snapshot), and a thread writes one
array after the other. The next update of a variable that is not written by then copies it first. So that these copies
remain few, training goes on when most of a large model is written (decision 66).
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from trainer.job.errors import Exit, TrainerError
from trainer.model_dir import checkpoint
from trainer.protocol import events
from trainer.training.callbacks import memory
from trainer.training.channel import Channel
from trainer.training.divergence import SMALLER_RATE, is_finite
from trainer.training.outputs.best import Validation, require_scored
from trainer.training.state import TrainState
from trainer.training.task import TrainingTask
from trainer.workloads.types import Tensor

HELD_BYTES = 64 << 20
"""What the thread may still have to write when training goes on, and so what updates may copy."""
HELD_SHARE = 0.4
"""The same, as a share of all variables; the larger of both counts."""
PAUSE_SECONDS = 0.7
"""Maximum wait for that."""
_POLL_SECONDS = 0.002


class Saver:
    """Writes checkpoints in a thread."""

    def __init__(self, job: TrainingTask, state: TrainState, channel: Channel) -> None:
        self._job, self._state, self._channel = job, state, channel
        self._thread = ThreadPoolExecutor(1, "checkpoint")
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

    def save(self, step: int, since: float | None = None, epochs: memory.Saved | None = None) -> None:
        """Begins a checkpoint of the variables once the previous one is on disk.

        Args:
            since: time.perf_counter() when training paused for it; default: now.

        Raises:
            UserError: the previous checkpoint could not be written, or the training data has changed.
            TrainerError: Exit.DIVERGED, if a variable was not finite in the previous one.
        """
        begun = since or time.perf_counter()
        self._job.require_unchanged_files()
        self.wait()
        left = self._state.snapshot()
        most = max(HELD_BYTES, HELD_SHARE * _held(left))
        self._pending = self._thread.submit(self._write, step, left, epochs)
        while _held(left) > most and time.perf_counter() < begun + PAUSE_SECONDS:
            if concurrent.futures.wait([self._pending], _POLL_SECONDS).done:
                break
        self._stalled += time.perf_counter() - begun
        if self._validation:
            self.wait()
            self._validation.take(step, self._state.values(), self._state.description())

    def raise_failure(self) -> None:
        """Raises what `wait` would, if that is known by now."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Waits until the checkpoint is on disk; raises what `save` does."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def _write(self, step: int, left: dict[str, Tensor], epochs: memory.Saved | None) -> None:
        spec, begun = self._job.spec, time.perf_counter()
        meta: dict[str, object] = {
            "compatibility_key": self._key,
            "workload_changed_after": self._changes,
            "variables": self._state.description(),
        }
        more: checkpoint.Values = {}
        if epochs is not None:
            meta["epochs"] = epochs.epochs
            more = epochs.arrays
        size = sum(map(_bytes, left.values())) + sum(value.nbytes for value in more.values())
        checkpoint.write(spec.directory, step, self._arrays(step, left, more), size, meta)
        left.clear()
        checkpoint.prune(spec.directory, spec.train.keep_checkpoints)
        self._written += time.perf_counter() - begun
        self._count += 1
        saved = events.Saved(step, self._stalled, written=self._written, checkpoints=self._count)
        self._channel.send(saved)

    def _arrays(self, step: int, left: dict[str, Tensor], more: checkpoint.Values) -> checkpoint.Arrays:
        """Yields the variables, and releases each when the next is asked for.

        Raises:
            TrainerError: Exit.DIVERGED, if one is not finite.
        """
        for name in list(left):
            yield name, self._finite(step, name, np.asarray(left[name]))
            del left[name]
        yield from more.items()

    def _finite(self, step: int, name: str, value: checkpoint.Array) -> checkpoint.Array:
        if not is_finite(value):
            path = self._state.description()[name]["path"]
            raise TrainerError(f"variable {path} is not finite at step {step}; {SMALLER_RATE}", Exit.DIVERGED)
        return value


def _held(left: Mapping[str, Tensor]) -> int:
    """Bytes of the variables' own memory among what is left to write."""
    return sum(_bytes(each) for each in list(left.values()) if tf.is_tensor(each))


def _bytes(value: Tensor) -> int:
    size: int = value.shape.num_elements() * value.dtype.size if tf.is_tensor(value) else value.nbytes
    return size
