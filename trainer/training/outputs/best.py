"""keep_best: the checkpoint with the best figure so far, in model_dir/best.

The folder is like a model_dir with one checkpoint, so a later job can begin with it (init_from: runs/NAME/best).
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from trainer.job.errors import UserError
from trainer.job.train import KeepBest
from trainer.model_dir import checkpoint, layout, lease
from trainer.model_dir.best import BestCheckpoint, known
from trainer.protocol import events
from trainer.training.model.build_model import build_copy
from trainer.training.model.evaluation import copy_of_model, make_score_of_values, score_on
from trainer.training.outputs.curve import Curve, read
from trainer.training.runtime.channel import Channel
from trainer.training.task import TrainingTask
from trainer.workloads.types import Dataset, Model


class Best:
    """Keeps the best of the checkpoints that it is offered; a restart continues with the one that is there."""

    def __init__(self, job: TrainingTask, keep: KeepBest) -> None:
        lease.require_own()
        self._job, self._keep = job, keep
        self._folder = layout.best(job.spec.directory)
        self.newest = known(job.spec, job.compatibility_key)
        if self.newest is None:
            shutil.rmtree(self._folder, ignore_errors=True)  # of another job, or by another metric
        checkpoint.remove_interrupted(self._folder)

    def offer(
        self, step: int, figures: Mapping[str, float], values: checkpoint.Values, described: Mapping[str, object]
    ) -> str | None:
        """Keeps a checkpoint if it is better than the best so far; returns a line about it then.

        Raises:
            UserError: its figures lack the metric, or the disk is full.
        """
        require(self._keep, figures)
        figure, best = figures[self._keep.metric], self.newest
        if not math.isfinite(figure) or (best is not None and not self._keep.better(figure, best.value)):
            return None
        lease.require_own()
        path = checkpoint.folder(self._folder) / checkpoint.name(step)
        shutil.rmtree(path, ignore_errors=True)  # of the same step, trained before a restart
        self.newest = BestCheckpoint(self._keep.metric, step, figure)
        meta = {"compatibility_key": self._job.compatibility_key, "variables": described}
        checkpoint.save(self._folder, step, values, meta | {"best": {"metric": self._keep.metric, "value": figure}})
        for other in checkpoint.folder(self._folder).glob("step-*"):
            if other != path:
                shutil.rmtree(other, ignore_errors=True)
        return f"checkpoint {step} is the best so far: {self._keep.metric}={figure:.4g}"

    def model(self, channel: Channel) -> Model | None:
        """A copy of the model with the values of the best checkpoint; a line is logged if no checkpoint is the best."""
        if self.newest is None:
            text = f"no checkpoint is the best, because {self._keep.metric} is not finite at any"
            channel.send(events.Line(f"warning: keep_best: {text}"))
            return None
        loaded = checkpoint.load(checkpoint.folder(self._folder) / checkpoint.name(self.newest.step))
        return copy_of_model(self._job, loaded[1]) if loaded else None


class Validation:
    """Scores each checkpoint on the validation data, on the chief, and keeps the best."""

    def __init__(
        self, job: TrainingTask, keep: KeepBest, channel: Channel, ended: Callable[[], bool] | None = None
    ) -> None:
        """Before the first step of a start, it scores checkpoints that are not yet scored.

        Args:
            ended: whether to leave a checkpoint to the next start; default: once the task is asked to stop.

        Raises:
            UserError: there is no validation data, or no such figure.
        """
        self._job, self._channel, self._ended = job, channel, ended or channel.stopping.is_set
        data = job.validation()
        if data is None:
            raise UserError(
                f"keep_best.metric: {keep.metric!r}: there is no validation data; define validation(shard), or set "
                "train.validation_split"
            )
        self._data, self._best = data, Best(job, keep)
        steps = checkpoint.steps(job.spec.directory)
        if not steps:
            require(keep, [f"val_{name}" for name in _names(job, self._data)])
        self._curve = Curve(job.spec.directory, "validation", steps[-1] if steps else 0)
        if not steps:
            total, every = job.total_steps(job.training), job.spec.train.checkpoint_steps
            if total <= every:
                text = f"keep_best: the only checkpoint is that of step {total}; set train.checkpoint_steps below it"
                channel.send(events.Line(f"warning: {text}"))
        self._scored = _scored(job)
        for step in sorted(set(steps) - self._scored):
            self._again(step)

    @cached_property
    def _score(self) -> Callable[[checkpoint.Values, Dataset, Callable[[], bool]], dict[str, float]]:
        return make_score_of_values(self._job)

    def take(self, step: int, values: checkpoint.Values, described: Mapping[str, object]) -> None:
        """Scores a checkpoint, but none twice: an early end may be at the step of one that is there."""
        if step in self._scored:
            return
        self._channel.send(events.EpochEnd(over=False))
        if not self._ended():
            scores = self._score(values, self._data, self._ended)
        if not self._ended():
            figures = {f"val_{name}": figure for name, figure in scores.items()}
            line = self._best.offer(step, figures, values, described)
            self._curve.add(step, figures)
            self._scored.add(step)
            if line:
                self._channel.send(events.Line(line))
        self._channel.send(events.EpochEnd(over=True))

    def _again(self, step: int) -> None:
        """Scores a checkpoint that a task wrote before it ended."""
        path = checkpoint.folder(self._job.spec.directory) / checkpoint.name(step)
        if loaded := checkpoint.load(path):
            newest, values = loaded
            of_variables = {name: value for name, value in values.items() if not name.startswith(checkpoint.CALLBACKS)}
            self.take(step, of_variables, newest.meta.get("variables", {}))


def at_the_end(job: TrainingTask, channel: Channel, step: int) -> Best | None:
    """The best of all checkpoints, the last one too if a stop has ended its validation."""
    keep = job.spec.keep_best
    if keep is None or not keep.of_validation:
        return None
    if step not in _scored(job):
        Validation(job, keep, channel, lambda: False)
    return Best(job, keep)


def _scored(job: TrainingTask) -> set[int]:
    return {record["step"] for record in read(layout.validation(job.spec.directory))}


def require_scored(job: TrainingTask, keep: KeepBest) -> None:
    """Checks before the first step that the evaluator will compute the figure, as far as its name can be known.

    Raises:
        UserError: it will not.
    """
    if job.workload.evaluate is None:
        require(keep, _names(job, job.evaluation()))


def require(keep: KeepBest, figures: Iterable[str]) -> None:
    if keep.metric not in figures:
        raise UserError(f"keep_best.metric: {keep.metric!r}: is not computed; the figures are {', '.join(figures)}")


def _names(job: TrainingTask, data: Dataset) -> list[str]:
    """The names of a model's figures. Those of a compiled one are known once it has been evaluated."""
    model = build_copy(job)
    return list(score_on(job, model, data.take(1))) if model.compiled else job.figure_names
