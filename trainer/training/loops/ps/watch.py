"""What the chief of a ps job shows of it: progress, the curve, and a loss that is not finite."""

from __future__ import annotations

import time

import numpy as np

from trainer.protocol import events
from trainer.protocol.log_lines import progress_line
from trainer.protocol.stacks import IN_STEP
from trainer.training.loops.ps.counters import Reading
from trainer.training.loops.time_spent import InputTime, Spent
from trainer.training.model.divergence import raise_if_not_finite
from trainer.training.model.step import Step
from trainer.training.outputs.curve import Curve
from trainer.training.runtime.channel import Channel
from trainer.training.task import TrainingTask


class Watch:
    """Reports progress, writes the curve, and raises for a loss that is not finite."""

    def __init__(
        self,
        job: TrainingTask,
        made: Step,
        channel: Channel,
        input_time: InputTime,
        step: int,
        total: int,
    ) -> None:
        self._input_time, self._seconds = input_time, np.zeros(3)
        self._spent = Spent(job.task.counts["worker"])
        self._worker_steps = 0
        self._figures = made.figures
        self._job, self._channel, self._total = job, channel, total
        self._curve = Curve(job.spec.directory, "metrics", step)
        self._logged = (time.perf_counter(), step, np.zeros(job.task.counts["worker"], np.int64))
        self._step = step
        self.moved = False
        channel.doing = lambda: f"{IN_STEP} {self._step + 1}"

    def look(self, reading: Reading) -> None:
        _, step, rows, worker_steps, seconds = reading
        # A bad row follows its step and stops all further ones, so it is also checked while no step is made.
        if len(bad := rows[rows[:, 0] > 0]):
            first = bad[bad[:, 0].argmin()]
            raise_if_not_finite(first[2:3], int(first[0]) - 1, self._job.training)
        if step == self._step:
            return
        self.moved = True
        self._step = step
        now, (then, since, steps_then) = time.perf_counter(), self._logged
        rates = (worker_steps - steps_then) * self._job.batch / (now - then)
        workers = {
            f"worker:{i}": {
                "step": int(worker_steps[i]),
                "examples_per_second": float(rates[i]),
                **self._figures(row[3:], row[1]),
            }
            for i, row in enumerate(rows)
            if worker_steps[i]
        }
        waited, _, elapsed = np.nan_to_num(seconds.sum(axis=0) - self._seconds)
        self._seconds = seconds.sum(axis=0)
        self._input_time.add(waited, elapsed, int(sum(worker_steps)) - self._worker_steps)
        self._worker_steps = int(sum(worker_steps))
        together = rows.sum(axis=0)
        # Workers report at the end of a closure: after a start there are steps of which nobody has told the figures.
        figures = self._figures(together[3:], together[1]) if together[1] else {}
        if figures:
            self._job.after_run(step, figures)
        told = bool(figures)
        figures["examples_per_second"] = (step - since) * self._job.batch / (now - then)
        share = {"input_share": self._input_time.share}
        spent = self._spent.look(now, worker_steps, seconds)
        rows_sent = {name: {**row, **spent[name]} for name, row in workers.items()}
        self._channel.send(
            events.Step(step=step, workers=rows_sent, figures=figures, input_share=self._input_time.share)
        )
        every = self._job.spec.train.log_steps
        if (told and step // every > since // every) or step == self._total:
            self._logged = (now, step, worker_steps)
            self._curve.add(step, figures | share, workers=workers)
            waits, warning = self._input_time.take()
            self._channel.send(events.Line(progress_line(step, self._total, figures | waits, workers)))
            if warning:
                self._channel.send(events.Line(warning))
