"""The evaluator: runs outside the cluster, scores checkpoints as they appear, and always the last one."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from trainer.job.cluster import Task
from trainer.job.errors import Exit, TrainerError
from trainer.job.messages import digits
from trainer.job.spec import JobSpec
from trainer.model_dir import checkpoint, checkpoint_meta
from trainer.protocol import events
from trainer.protocol.log_lines import log_traceback
from trainer.protocol.orders import Final, Go
from trainer.training.model.evaluation import copy_of_model, score
from trainer.training.outputs import exports
from trainer.training.outputs.best import Best
from trainer.training.outputs.curve import Curve, Record, read
from trainer.training.runtime.channel import Channel
from trainer.training.task import Load, TrainingTask
from trainer.training.weights.untracked import give_file
from trainer.workloads.locate import where_it_failed
from trainer.workloads.types import Model

CHECKPOINT_POLL_SECONDS = 1.0
"""Seconds between two looks for a new checkpoint."""


def run(spec: JobSpec, _task: Task, load: Load, _go: Go, channel: Channel) -> None:
    """Scores new checkpoints until the order {"final": step} comes, and that step last.

    Before that order, a checkpoint that cannot be scored is logged, and the next one scored.

    Raises:
        TrainerError: Exit.EVALUATION, the last checkpoint cannot be scored.
    """
    job = load()
    directory = spec.directory
    throttle = job.workload.eval_spec.throttle_secs if job.workload.eval_spec else 0.0
    records = {record["step"]: record for record in read(Path(directory) / "evaluation.jsonl")}
    keep = spec.keep_best
    best = Best(job, keep) if keep and not keep.of_validation else None
    scorer = _Scorer(job, channel, Curve(directory, "evaluation", max(records, default=0)), best)
    seen, next_at, idle = set(records), 0.0, False
    while (order := _order(channel, CHECKPOINT_POLL_SECONDS if idle else 0)) is None:
        new = [step for step in checkpoint.steps(directory) if step not in seen]
        now = time.monotonic()
        idle = not new or now < next_at
        if not idle:
            seen.add(new[-1])
            next_at = now + throttle
            scorer.take(new[-1])
    newest = scorer.newest
    if newest is None or newest.step != order.step:
        newest = _known(job, order.step, records)
    scorer.end(order, newest)


def _order(channel: Channel, seconds: float) -> Final | None:
    with contextlib.suppress(queue.Empty):
        return channel.final.get(timeout=seconds)
    return None


class Evaluated(NamedTuple):
    step: int
    model: Model
    figures: dict[str, float]
    """Empty until it is scored."""
    values: checkpoint.Values
    described: Mapping[str, object]


@dataclass
class _Scorer:
    """Scores checkpoints, reports them and lets exporters write them."""

    job: TrainingTask
    channel: Channel
    curve: Curve
    best: Best | None
    newest: Evaluated | None = None
    _missed_one: bool = False

    def take(self, step: int) -> None:
        """Scores one checkpoint; an error is logged."""
        what = "scored"
        try:
            evaluated = _load(self.job, step)
            if evaluated is not None:
                evaluated = self._score(evaluated)
                what = "exported"
                # Older checkpoints that are not scored yet follow after the newest.
                self.newest = evaluated if self.newest is None or step > self.newest.step else self.newest
                exports.run_exporters(self.job, evaluated.model, evaluated.figures, last=False)
            elif not self._missed_one:
                self._missed_one = True
                text = f"checkpoint {step} was pruned before it was scored; only this is logged"
                self.channel.send(events.Line(text))
        except Exception as error:
            self.channel.send(events.Line(f"checkpoint {step} is not {what}: {_why(self.job, error)}"))

    def end(self, order: Final, last: Evaluated) -> None:
        """Scores the last checkpoint, unless that is done, and in any case runs the exporters that wait for it.

        `score` is false if an earlier attempt to score it ended the whole process.
        """
        failure = None
        if not last.figures and order.score:
            try:
                last = self._score(last)
            except Exception as error:
                failure = _why(self.job, error)
        exports.run_exporters(self.job, last.model, last.figures, last=True)
        if failure is not None:
            raise TrainerError(failure, Exit.EVALUATION)
        best = None
        if self.best and (model := self.best.model(self.channel)):
            exports.export_best(model, self.job.spec.directory)
            best = self.best.newest
        self.channel.send(events.Done(step=last.step, best=asdict(best) if best else None))

    def _score(self, evaluated: Evaluated) -> Evaluated:
        figures = score(self.job, evaluated.model)
        line = self.best.offer(evaluated.step, figures, evaluated.values, evaluated.described) if self.best else None
        self.curve.add(evaluated.step, figures)
        text = " ".join(f"{name}={digits(value)}" for name, value in figures.items())
        self.channel.send(events.Scored(step=evaluated.step, figures=figures))
        self.channel.send(events.Line(f"checkpoint {evaluated.step}: test {text}"))
        if line:
            self.channel.send(events.Line(line))
        return evaluated._replace(figures=figures)


def _known(job: TrainingTask, step: int, records: dict[int, Record]) -> Evaluated:
    """The last checkpoint, with the metrics that an earlier process computed."""
    evaluated = _load(job, step)
    if evaluated is None:
        raise TrainerError(f"the last checkpoint, of step {step}, is damaged or gone", Exit.EVALUATION)
    figures = {name: value for name, value in records.get(step, {}).items() if name not in ("step", "time")}
    return evaluated._replace(figures=figures)


def _load(job: TrainingTask, step: int) -> Evaluated | None:
    """A checkpoint's model, not scored; None if the checkpoint is damaged, or was pruned meanwhile.

    Raises:
        UserError: it does not fit the spec.
    """
    loaded = checkpoint.load(checkpoint.folder(job.spec.directory) / checkpoint.name(step))
    if loaded is None:
        return None
    newest, values = loaded
    if different := checkpoint_meta.differences(newest.meta, job.spec, job.compatibility_key):
        raise checkpoint_meta.refusal(newest.meta, job.spec.directory, different)
    give_file(job, values)
    return Evaluated(step, copy_of_model(job, values), {}, values, newest.meta.get("variables", {}))


def _why(job: TrainingTask, error: Exception) -> str:
    log_traceback(error)
    if isinstance(error, TrainerError):
        return str(error)
    place = where_it_failed(error, job.spec.workload)
    return place or f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
