"""How a training ends, and what it says on the way: shared by both loops."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from trainer.job.errors import Exit, TrainerError, UserError
from trainer.model_dir import checkpoint
from trainer.training.channel import Channel
from trainer.training.evaluation import evaluate
from trainer.training.outputs import exports
from trainer.training.state import TrainState
from trainer.training.task import TrainingTask
from trainer.training.user_code import calling


class Saver:
    """Copies the variables at once and writes them in a thread, so that training goes on."""

    def __init__(self, job: TrainingTask, state: TrainState, channel: Channel) -> None:
        self._job, self._state, self._channel = job, state, channel
        self._pool = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[None] | None = None
        self._key = job.compatibility_key
        self._changes = checkpoint.workload_changes(job.spec.directory, self._key)
        self._stalled = 0.0
        """Seconds for which training stood still."""

    def save(self, step: int, values: checkpoint.Values | None = None, since: float | None = None) -> None:
        """Begins a checkpoint of these values, or of those now, after the one before is on disk.

        Args:
            since: when training came to a stand for it, of time.perf_counter(); now, unless given.

        Raises:
            UserError: the one before could not be written.
            TrainerError: Exit.DIVERGED, if a variable is not finite.
        """
        begun = since or time.perf_counter()
        self.wait()
        values = self._state.values() if values is None else values
        for name, value in values.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                path = self._state.description()[name]["path"]
                raise TrainerError(f"variable {path} is not finite at step {step}; {_SMALLER_RATE}", Exit.DIVERGED)
        self._stalled += time.perf_counter() - begun
        self._pending = self._pool.submit(self._write, step, values)

    def wait(self) -> None:
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def _write(self, step: int, values: checkpoint.Values) -> None:
        spec = self._job.spec
        description = self._state.description()
        meta = {"fits": self._key, "workload_changed_after": self._changes, "variables": description}
        checkpoint.save(spec.directory, step, values, meta)
        checkpoint.prune(spec.directory, spec.train.keep_checkpoints)
        self._channel.tell("checkpoint", step=step, stalled=self._stalled)


def finish(job: TrainingTask, values: checkpoint.Values, channel: Channel, step: int, pace: tuple[float, int]) -> None:
    """The chief evaluates, exports and reports; every other task waits to be ended by its supervisor.

    Args:
        values: of the trained variables.
        pace: (seconds, steps) of steady training in this generation.
    """
    if not job.task.is_chief:
        channel.tell("trained", step=step)
        # Leaving now would make TensorFlow's coordination service call this task crashed (tensorflow#58434).
        threading.Event().wait()
    channel.tell("finishing", step=step)
    model, figures = evaluate(job, values)
    try:
        with calling(job.spec.workload, "the export of the model"):
            exports.export(model, job.spec.directory)
        if not job.spec.tasks.evaluator:
            exports.run_exporters(job, model, figures, last=True)
    except OSError as error:
        raise UserError(f"model_dir: {job.spec.directory}: the model cannot be exported: {error.strerror}") from None
    seconds, steps = pace
    rate = steps * job.global_batch / seconds if steps and seconds else None
    channel.tell("done", step=step, test=figures, examples_per_second=rate)


def raise_if_not_finite(losses: npt.NDArray[np.floating], step_before: int) -> None:
    """Losses of consecutive steps after step_before.

    Raises:
        TrainerError: Exit.DIVERGED, naming the first step whose loss is not finite.
    """
    bad = np.flatnonzero(~np.isfinite(losses))
    if len(bad):
        step = step_before + int(bad[0]) + 1
        raise TrainerError(f"the loss is {losses[bad[0]]} at step {step}; {_SMALLER_RATE}", Exit.DIVERGED)


_SMALLER_RATE = (
    "lower train.learning_rate, in another model_dir, or look at the data; the checkpoints before it are good"
)
