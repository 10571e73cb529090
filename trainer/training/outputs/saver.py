"""Writes checkpoints while training continues.

Training waits while the variables are copied. A thread then writes one array after the other (decision 66).
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

import tensorflow as tf

from trainer import host
from trainer.job.errors import Exit, TrainerError
from trainer.model_dir import checkpoint
from trainer.protocol import events
from trainer.training.callbacks.state import Saved
from trainer.training.model.divergence import is_finite, what_to_do
from trainer.training.model.state import TrainState, as_array
from trainer.training.outputs.best import Validation, require_scored
from trainer.training.outputs.host_memory import HostMemory
from trainer.training.private.keras_private import inner, variables_of
from trainer.training.runtime.channel import Channel
from trainer.training.task import TrainingTask
from trainer.workloads.types import Tensor


class Saver:
    """Writes checkpoints in a thread."""

    def __init__(self, job: TrainingTask, state: TrainState, channel: Channel) -> None:
        self._job, self._state, self._channel = job, state, channel
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[None] | None = None
        self._memory = HostMemory(host.cpus(job.spec.tasks.of(job.task.type).cpu), state.tensors())
        self._key = job.compatibility_key
        self._constants = _not_finite_from_the_start(state)
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

    def save(self, step: int, since: float | None = None, epochs: Saved | None = None) -> None:
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
        left = self._memory.copies(self._state.snapshot())
        self._pending = self._thread.submit(self._write, step, left, epochs)
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

    def _write(self, step: int, left: dict[str, Tensor], epochs: Saved | None) -> None:
        spec, begun = self._job.spec, time.perf_counter()
        meta: dict[str, object] = {
            "compatibility_key": self._key,
            "workload_changed_after": self._changes,
            "variables": self._state.description(),
            "rates": self._state.rates,
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
            yield name, self._finite(step, name, as_array(left[name]))
            del left[name]
        yield from more.items()

    def _finite(self, step: int, name: str, value: checkpoint.Array) -> checkpoint.Array:
        if name not in self._constants and not is_finite(value):
            path, advice = self._state.description()[name]["path"], what_to_do(self._job.training)
            raise TrainerError(f"variable {path} is not finite at step {step}; {advice}", Exit.DIVERGED)
        return value


def _not_finite_from_the_start(state: TrainState) -> set[str]:
    """The names of variables that no optimizer updates, and that are not finite before this process trains: such as a
    mask of -inf that a layer keeps as a weight."""
    updated = {id(v) for each in state.optimizers.values() for v in each.variables}
    updated |= {id(v) for each in state.optimizers.values() for v in variables_of(inner(each))}
    others = {name: v for name, v in state.variables if id(v) not in updated}
    return {name for name, v in others.items() if not is_finite(as_array(tf.convert_to_tensor(v)))}


def _bytes(value: Tensor) -> int:
    size: int = value.shape.num_elements() * value.dtype.size if tf.is_tensor(value) else value.nbytes
    return size
