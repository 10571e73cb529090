"""The end of training: the chief evaluates, exports and reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from trainer.job.errors import UserError
from trainer.model_dir import init_files
from trainer.model_dir.result import EQUAL
from trainer.protocol import events
from trainer.protocol.after_training import CHECKS, EVALUATES, EXPORTS, stage
from trainer.training.callbacks.hooks import Replaced
from trainer.training.model import batches
from trainer.training.model.evaluation import evaluate
from trainer.training.model.loss_scale import skipped
from trainer.training.model.state import TrainState
from trainer.training.outputs import exports
from trainer.training.outputs.best import at_the_end
from trainer.training.outputs.reload import Reloading
from trainer.training.runtime import created_variables
from trainer.training.runtime.channel import Channel
from trainer.training.runtime.user_code import calling, essence
from trainer.training.task import TrainingTask
from trainer.workloads.locate import where_it_failed
from trainer.workloads.types import Model

TELL_SECONDS = 1.0
"""Time between two reports of how far the evaluation is."""


@dataclass(frozen=True)
class Trained:
    """How a strategy's loop ended."""

    step: int
    stopped: bool
    """Whether the loop was asked to stop, and did so before the last step."""
    pace: tuple[float, int]
    """Seconds and steps of steady training in this generation."""
    early: str | None = None
    """Why a callback has ended the training."""
    weights: Replaced | None = None
    """Values of the model's variables that replace those of the last step."""


Train = Callable[[TrainingTask], Trained]
"""The loop of a strategy, from the newest checkpoint to the end."""


def finish(job: TrainingTask, state: TrainState, channel: Channel, trained: Trained) -> None:
    """The chief evaluates, exports and reports; every other task waits to be ended by its supervisor."""
    step, weights = trained.step, trained.weights
    values, skips = state.values(), skipped(state.optimizer)  # On all tasks: to read a variable may be a collective.
    if not job.task.is_chief:
        channel.send(events.Trained())
        # If this task exited now, TensorFlow's coordination service would report it as crashed (tensorflow#58434).
        threading.Event().wait()
    tell = _Telling(channel, checks=job.spec.check_exports)
    tell.stage(EVALUATES)
    kept = at_the_end(job, channel, step)
    best = kept.model(channel) if kept else None
    reloading = Reloading(job, sum(value.nbytes for value in values.values()))
    final = values | (weights.values if weights else {})
    model, figures = evaluate(job, final, averaged=weights is not None, on_batch=tell.batch)
    tell.stage(EXPORTS)
    failed = _export(job, model, best, figures)
    tell.stage(CHECKS)
    models = dict.fromkeys(exports.NAMES, model) | ({exports.BEST: best} if best else {})
    verdicts = _verdicts(job, models, failed, reloading, channel)
    seconds, steps = trained.pace
    rate = steps * job.global_batch / seconds if steps and seconds else None
    channel.send(
        events.Done(
            step=step,
            test=figures,
            exports=verdicts,
            examples_per_second=rate,
            skipped_batches=skips,
            stopped_early=trained.early,
            final_weights=f"set by {weights.by}; the last checkpoint has those of step {step}" if weights else None,
            bad_records=job.bad_records,
            init_from=init_files.read_report(job.spec),
            best=asdict(kept.newest) if kept and kept.newest else None,
        )
    )


class _Telling:
    """Reports what the end of training has come to."""

    def __init__(self, channel: Channel, *, checks: bool) -> None:
        self._channel, self._checks, self._told = channel, checks, time.monotonic()

    def stage(self, now: str, progress: str = "") -> None:
        self._told = time.monotonic()
        if now != CHECKS or self._checks:
            self._channel.send(events.Finishing(stage(now, checks=self._checks, progress=progress)))

    def batch(self, number: int, of: int | None) -> None:
        """Reports a batch of the test data, but not each of many."""
        if time.monotonic() - self._told >= TELL_SECONDS:
            self.stage(EVALUATES, f"batch {number:,}{'' if of is None else f' of {of:,}'}")


def _export(job: TrainingTask, model: Model, best: Model | None, figures: dict[str, float]) -> dict[str, Exception]:
    """Writes the exports; returns the errors of those that Keras cannot write."""
    try:
        with calling(job.spec.workload, "the export of the model"):
            x = None if created_variables.declares_inputs(model) else batches.x_spec(job)
            failed = exports.export(model, job.spec.directory, best, x)
        if not job.spec.tasks.evaluator:
            exports.run_exporters(job, model, figures, last=True)
    except OSError as error:
        raise UserError(f"model_dir: {job.spec.directory}: the model cannot be exported: {error.strerror}") from None
    return failed


def _verdicts(
    job: TrainingTask, models: dict[str, Model], failed: dict[str, Exception], reloading: Reloading, channel: Channel
) -> dict[str, str]:
    """What each export is, loaded again. A line is logged for each that is not equal to the trained model."""
    verdicts = reloading.verdicts({name: model for name, model in models.items() if name not in failed}, channel)
    for name, error in failed.items():
        place = where_it_failed(error, job.spec.workload)
        verdicts[name] = f"cannot be written: {place or f'{type(error).__name__}: {essence(str(error))}'}"
    if len(failed) == len(models):
        verdicts[exports.WEIGHTS] = "written in their place; load it into model() of the workload file"
    for name, verdict in verdicts.items():
        if verdict != EQUAL:
            channel.send(events.Line(f"warning: export/{name}: {verdict}"))
    return verdicts
