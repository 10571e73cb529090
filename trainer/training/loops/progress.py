"""What the synchronous loop reports of its steps."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainer.protocol import events
from trainer.protocol.log_lines import progress_line
from trainer.training.loops.time_spent import InputTime, parts
from trainer.training.model.step import Step
from trainer.training.outputs.curve import Curve
from trainer.training.runtime.channel import Channel
from trainer.training.task import TrainingTask

REPORT_SECONDS = 0.1
"""Minimum seconds between two reports of steps: a small model makes a thousand steps per second."""


class Result(NamedTuple):
    """Result of a call of several steps."""

    losses: npt.NDArray[np.float32]
    """Loss of each step, over all replicas."""
    applied: npt.NDArray[np.bool_]
    """Whether each step changed the variables."""
    sums: npt.NDArray[np.float32]
    """The step's vector, added up over all replicas and the steps that were applied."""
    own: npt.NDArray[np.float32]
    """The same sum over this task's replicas."""
    stop: bool
    """Whether some task was asked to stop."""
    pace: float
    """Seconds per step, the mean of all tasks."""
    longest_wait: float
    """Seconds for which the steps waited for their data, on the task where that was longest."""
    waited: float
    """The same on this task; NaN if it is not known, as the next."""
    exchanged: float
    """Seconds in which this task had nothing to do but to exchange values with the others, and to wait for them."""


class Progress:
    """Reports a task's steps, and on the chief writes log lines and the learning curve."""

    def __init__(
        self, job: TrainingTask, made: Step, channel: Channel, input_time: InputTime, step: int, total: int
    ) -> None:
        self.step, self.total, self.input_time = step, total, input_time
        self.begun: tuple[float, int] | None = None
        """Time and step at the end of the first call, which traced the graph."""
        self._job, self._channel = job, channel
        self._curve = Curve(job.spec.directory, "metrics", step) if job.task.is_chief else None
        self._logged = (time.perf_counter(), step)
        self.figures, self._window = made.figures, np.zeros(made.width)
        self._report_at, self._warned = 0.0, False
        self._now = 0.0
        """The end of the last call."""
        self._made, self._spent, self._between = 0, np.zeros(3), 0.0
        """Steps; seconds of input, of exchange and of all of these steps; seconds between them."""

    def called(self, step: int, count: int, seconds: float, result: Result) -> float:
        """Records the end of a call of `count` steps; returns the seconds per step, 0 for the first call."""
        pace = seconds / count if self.begun else 0.0
        now = time.perf_counter()
        if self.begun:
            self.input_time.add(result.longest_wait, seconds, count)
            self._made += count
            self._spent += np.array([result.waited, result.exchanged, seconds])
            self._between += max(0.0, now - seconds - self._now)
        self._now = now
        self.begun = self.begun or (self._now, step)
        return pace

    def pace(self, step: int) -> tuple[float, int]:
        """Seconds and steps since the first call."""
        return (time.perf_counter() - self.begun[0], step - self.begun[1]) if self.begun else (0.0, 0)

    def add(self, step: int, done: int, result: Result) -> None:
        """Reports a call that applied `done` steps, the last of which is `step`."""
        job, last = self._job, step == self.total or result.stop
        self._window += result.sums
        then, since = self._logged
        rate = (step - since) * job.global_batch / (self._now - then)
        if self._now >= self._report_at or last:
            own_rate = rate / len(job.task.members())
            own_figures = self.figures(result.own, done * job.local_replicas)
            figures = {**own_figures, "examples_per_second": own_rate}
            waited, exchanged, elapsed = self._spent
            seconds = parts(waited, exchanged, elapsed, self._between)
            waiting = self.input_time.share
            self._channel.send(events.Step(step, None, figures, self._made, **seconds, input_share=waiting))
            self._report_at = self._now + REPORT_SECONDS
        if step % job.spec.train.log_steps and not last:
            return
        share = {"input_share": self.input_time.share}
        waits, warning = self.input_time.take()
        if self._curve:
            figures = self.figures(self._window, (step - since) * job.replicas) | {"examples_per_second": rate}
            self._curve.add(step, {**figures, "step_loss": float(result.losses[result.applied][-1]), **share})
            self._channel.send(events.Line(progress_line(step, self.total, figures | waits)))
            if warning:
                self._channel.send(events.Line(warning))
        self._logged, self._window = (self._now, step), np.zeros_like(self._window)

    def warn_of_slow_steps(self, pace: float) -> None:
        """Warns once, on the chief."""
        if self._warned or not self._job.task.is_chief:
            return
        self._warned = True
        seconds = f"a step takes {pace:.1f} s, longer than deadlines.stop ({self._job.spec.deadlines.stop:g} s)"
        self._channel.send(events.Line(f"{seconds}: SIGTERM cannot save a checkpoint; raise deadlines.stop"))
