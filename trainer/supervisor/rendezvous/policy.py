"""Failure policy: decides the consequence of a failure for the job, which the rendezvous carries out.

re-form           all tasks form a new generation, from the newest checkpoint
restart alone     the task's own supervisor replaces its child; the others continue
end               the job fails, with an exit code and a message
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from trainer.job.derived import restarts_alone
from trainer.job.errors import Exit
from trainer.job.messages import counted
from trainer.job.spec import JobSpec
from trainer.protocol.facts import Cause, Loss, Lost, Stalled, failure_code, lost_text
from trainer.protocol.reports import Report
from trainer.supervisor.rendezvous.progress import Progress, ProgressWatch

UNSEEN_PROGRESS = (
    "how far the job has come is not seen: the chief's program calls no trainer.report, prints no higher step, and has "
    "no files below TRAINER_MODEL_DIR"
)


class End(NamedTuple):
    """How the job fails."""

    code: Exit
    message: str
    task: str | None = None
    """The task that it fails for."""
    loss: Loss | None = None
    """The loss of that task."""


@dataclass(frozen=True)
class Decision:
    """What follows from a failure."""

    fact: Lost | Stalled | None = None
    """What has happened."""
    re_form: bool = False
    restarts: bool = False
    """Whether the job or the task restarts for it, which is counted by its cause."""
    end: End | None = None


@dataclass
class FailurePolicy:
    """Decides by the spec and by earlier failures."""

    spec: JobSpec
    evaluators: list[str]
    chief: str
    last: Lost | Stalled | None = None
    """The last loss or stall."""
    task_lost: bool = False
    """Whether a task of this generation was lost for another reason than a lost peer."""
    blame_refuted: bool = False
    """Whether the previous generation ended with an error that a lost peer may cause, though none was lost."""
    unseen_progress: bool = False
    """Whether nothing has ever shown how far the job's programs have come."""
    ended_before: tuple[str, float] | None = None
    """The task whose program exited with 0 before the last error or hang that this may cause, and how many seconds."""
    lives_without_step: dict[str, int] = field(default_factory=dict)
    """Consecutive lives without a step of its own, including the present one, of each task that restarts alone."""

    def lost(self, name: str, loss: Loss, *, ended: bool = True) -> Decision:
        """A task was lost; `ended` is False if it is only silent, so its child may still be alive."""
        if name in self.evaluators:
            self.last = Lost(name, loss, "not_awaited")
            return Decision(self.last, restarts=True)
        if not self.restarts_alone(name):
            self.last = Lost(name, loss, "re_forming")
            if self.spec.resume == "none":
                text = f"{lost_text(name, loss)}, and the program does not resume (resume: none)"
                return Decision(end=End(Exit.GAVE_UP, text, name, loss))
            return Decision(self.last, re_form=True, restarts=True)
        self.last = Lost(name, loss, "others_continue")
        if not ended:
            return Decision(self.last, restarts=True)
        lives = self.lives_without_step.get(name, 1)
        self.lives_without_step[name] = lives + 1
        if lives > self.spec.max_restarts:
            in_a_row = "in a row" if self.unseen_progress else "in a row without a step"
            text = f"{name} was lost {lives} times {in_a_row} (max_restarts); last: {loss}{self._unseen()}"
            return Decision(self.last, end=End(Exit.GAVE_UP, text, name, loss))
        return Decision(self.last, restarts=True)

    def misses_a_peer(self, report: Report) -> bool:
        """Whether a task's child has ended because a peer's gives no sign of life, which may still exist."""
        return report.loss is not None and report.loss.blames_peer and report.loss.cause is Cause.PEER_SILENT

    def stepped(self, names: Iterable[str]) -> None:
        """Records that these tasks made a step of their own."""
        self.lives_without_step |= dict.fromkeys(names, 0)

    def leaves(self, report: Report) -> Decision:
        """A task was asked to stop, and its child no longer runs."""
        self.task_lost = True
        # After a stop of the whole job, the chief's child still saves a checkpoint.
        agreed = report.status.stopped_well
        if agreed or self.restarts_alone(report.task):
            return Decision()
        return Decision(Lost(report.task, Loss(Cause.ASKED_TO_STOP), "re_forming"), re_form=True, restarts=True)

    def failed(self, report: Report) -> Decision | None:
        """Ends the job if a task reports a failure that would repeat wherever it runs."""
        loss = report.loss
        if loss is None or not loss.ends_the_job or report.task in self.evaluators:
            return None
        if self.spec.runs.end_together and loss.code == Exit.PROGRAM:
            return None  # another task may be the cause: see first_cause.py
        return Decision(end=failure(report.task, loss))

    def overdue(self, watch: ProgressWatch, where: str) -> Decision:
        """The chief's child has made no progress until its deadline.

        Args:
            where: which task the others waited for, and where it was; empty if that is not known.
        """
        place = f"; {where}" if where else ""
        if not (watch.finishing or watch.evaluating):
            waited = f"it waited for {watch.waits_for}, which indexed its files" if watch.waits_for else ""
            text = "; ".join(filter(None, (waited, where)))
            seconds, setting = self.spec.deadlines.progress, "deadlines.progress"
            self.last = Stalled(Loss(Cause.NO_NEW_STEP, text, seconds=seconds, setting=setting))
            return Decision(self.last, re_form=True, restarts=True)
        longer = f"took longer than {self.spec.deadlines.evaluation:g} s (deadlines.evaluation)"
        if watch.finishing:
            text = (
                f"the final evaluation and export {longer}; the trained checkpoint is kept: fix data('test') or "
                "evaluate(), or raise the deadline, and the same command evaluates it"
            )
        elif watch.step == 0:
            text = (
                f"reading the test data before the first step {longer}; make data('test') quicker, or raise the "
                "deadline"
            )
        else:
            text = (
                f"validation and callbacks at the end of an epoch {longer}; checkpoints are kept: make validation() "
                "smaller, or raise the deadline, and the same command continues"
            )
        return Decision(end=End(Exit.EVALUATION, f"{self.chief}: {text}{place}", self.chief))

    def before_forming(self, reports: Iterable[Report], generation: int, progress: Progress) -> Decision | None:
        """The reason why no further generation is formed; None if one is.

        Args:
            reports: of all required tasks.
            generation: the previous one.
        """
        without = progress.generations_without_progress
        if without > self.spec.max_restarts:
            new_step = "in a row" if self.unseen_progress else "without a new step"
            end: End | None = self._gave_up(f"{counted(without, 'generation')} {new_step} (max_restarts)")
        else:
            end = self._repeated_failure(reports, generation, without)
        if end:
            return Decision(end=self._with_early_end(end))
        self.task_lost, self.ended_before = False, None
        return None

    def _with_early_end(self, end: End) -> End:
        """An end that begins with the program that exited with 0 while the others still needed it, if one did."""
        if self.ended_before is None:
            return end
        name, seconds = self.ended_before
        early = f"{name}: its program ended with exit code 0, {seconds:.0f} s before those of the others"
        return end._replace(message=f"{early}, which could not go on without it: {end.message}", task=name)

    def _gave_up(self, text: str) -> End:
        match self.last:
            case Lost(task, loss):
                return End(Exit.GAVE_UP, f"{text}; last: {lost_text(task, loss)}{self._unseen()}", task, loss)
            case Stalled(loss):
                return End(Exit.GAVE_UP, f"{text}; last: {loss}", None, loss)
            case _:
                return End(Exit.GAVE_UP, f"{text}; last: unknown")

    def _unseen(self) -> str:
        """Says that the job may have advanced, and how to show it."""
        return f"; {UNSEEN_PROGRESS}; do one of these, or raise max_restarts" if self.unseen_progress else ""

    def _repeated_failure(self, reports: Iterable[Report], generation: int, without_progress: int) -> End | None:
        """Attributes an error that a lost peer may cause to the task itself if it repeats without a new step while no
        peer is lost. Once, it may be the network."""
        blaming = [
            (r.task, r.loss) for r in reports if r.ended_early and r.ended_early == generation and _blames(r.loss)
        ]
        if self.task_lost or not blaming:
            self.blame_refuted = False
            return None
        task, loss = blaming[0]
        if self.blame_refuted and without_progress and loss is not None:
            again = replace(loss, error=f"{loss.error} (twice, and no other task was lost)")
            return failure(task, again)
        self.blame_refuted = True
        return None

    def restarts_alone(self, name: str) -> bool:
        return restarts_alone(self.spec, name, self.chief)


def failure(name: str, loss: Loss) -> End:
    """The end of a job for an error that would repeat."""
    return End(failure_code(loss.code), f"{name}: {loss.error}", name, loss)


def _blames(loss: Loss | None) -> bool:
    return loss is not None and loss.blames_peer and bool(loss.code)
