"""Failure policy: decides the consequence of a failure for the job, which the rendezvous carries out.

re-form           all tasks form a new generation, from the newest checkpoint
restart alone     the task's own supervisor replaces its child; the others continue
end               the job fails, with an exit code and a message
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from trainer.job.derived import restarts_alone
from trainer.job.errors import Exit
from trainer.job.messages import counted
from trainer.job.spec import JobSpec
from trainer.model_dir.result import Kind
from trainer.protocol.reports import Report, failure_code
from trainer.supervisor.rendezvous.progress import Progress, ProgressWatch

_CAUSES = {
    "out of memory": "out_of_memory",
    "killed by": "killed",
    "no sign of life": "hang",
    "no report for": "hang",
    "no contact with the chief": "silent",
    "silent for": "silent",
    "its supervisor was restarted": "supervisor_restarted",
}
"""By how the reason of a loss begins."""
_HEARTBEATS = "stopped sending heartbeats"
"""In the error of TensorFlow's coordination service, up to 10 s after a peer was stopped or its machine was lost
(xla/tsl/distributed_runtime/coordination/coordination_service.cc)."""
_ENDED, _STOPPED, _STALLED = "child_ended", "asked_to_stop", "no_new_step"
CAUSES = tuple(dict.fromkeys([*_CAUSES.values(), _ENDED, _STOPPED, _STALLED]))
"""Of restarts, in /metrics."""


@dataclass(frozen=True)
class Decision:
    note: str = ""
    """An event for the job's log, or empty."""
    re_form: bool = False
    cause: str = ""
    """One of CAUSES, if something restarts."""
    task: str | None = None
    """The task that was lost."""
    end: tuple[Exit, str] | None = None
    """Exit code and message with which the job fails."""

    @property
    def kind(self) -> Kind:
        """Of the event, if there is a note."""
        return "stalled" if self.cause == _STALLED else "lost"


@dataclass
class FailurePolicy:
    """Decides by the spec and by earlier failures."""

    spec: JobSpec
    evaluators: list[str]
    chief: str
    last_loss: str = "unknown"
    task_lost: bool = False
    """Whether a task of this generation was lost for another reason than a lost peer."""
    blame_refuted: bool = False
    """Whether the previous generation ended with an error that a lost peer may cause, though none was lost."""
    lives_without_step: dict[str, int] = field(default_factory=dict)
    """For a task that restarts alone: consecutive lives, including the present one, without a step of its own."""

    def lost(self, name: str, reason: str, *, ended: bool = True) -> Decision:
        """A task was lost; `ended` is False if it is only silent, so its child may still be alive."""
        self.last_loss = f"{name} lost ({reason})"
        cause = next((cause for begin, cause in _CAUSES.items() if reason.startswith(begin)), _ENDED)
        if name in self.evaluators:
            return Decision(f"{self.last_loss}; the job does not wait for it", cause=cause, task=name)
        if not self.restarts_alone(name):
            if self.spec.resume == "none":
                return Decision(end=(Exit.GAVE_UP, f"{self.last_loss}, and the program does not resume (resume: none)"))
            return Decision(f"{self.last_loss}, re-forming", re_form=True, cause=cause, task=name)
        note = f"{self.last_loss}; the others continue"
        if not ended:
            return Decision(note, cause=cause, task=name)
        lives = self.lives_without_step.get(name, 1)
        self.lives_without_step[name] = lives + 1
        if lives > self.spec.max_restarts:
            times = f"{name} was lost {lives} times in a row without a step (max_restarts)"
            return Decision(note, task=name, end=(Exit.GAVE_UP, f"{times}; last: {reason}"))
        return Decision(note, cause=cause, task=name)

    def misses_a_peer(self, report: Report) -> bool:
        """Whether a task's child has ended because a peer's gives no sign of life, which may still exist."""
        return report.blames_peer and _HEARTBEATS in report.reason

    def stepped(self, names: Iterable[str]) -> None:
        """Records that these tasks made a step of their own."""
        self.lives_without_step |= dict.fromkeys(names, 0)

    def leaves(self, report: Report) -> Decision:
        """A task was asked to stop, and its child no longer runs."""
        self.task_lost = True
        # After a stop of the whole job, the chief's child still saves a checkpoint.
        agreed = bool(report.status.get("stopped_well"))
        if agreed or self.restarts_alone(report.task):
            return Decision()
        return Decision(f"{report.task} was asked to stop, re-forming", re_form=True, cause=_STOPPED, task=report.task)

    def failed(self, report: Report) -> Decision | None:
        """Ends the job if a task reports a failure that would repeat wherever it runs."""
        if report.failure is None or report.blames_peer or report.task in self.evaluators:
            return None
        if self.spec.runs.end_together and report.failure[0] == Exit.PROGRAM:
            return None  # another task may be the cause: see deaths.py
        return _failure(report.task, *report.failure)

    def overdue(self, watch: ProgressWatch, where: str) -> Decision:
        """The chief's child has made no progress until its deadline.

        Args:
            where: which task the others waited for, and where it was; empty if that is not known.
        """
        place = f"; {where}" if where else ""
        if not (watch.finishing or watch.evaluating):
            waited = f"; it waited for {watch.waits_for}, which indexed its files" if watch.waits_for else ""
            self.last_loss = f"no new step for {self.spec.deadlines.progress:g} s (deadlines.progress){waited}{place}"
            return Decision(self.last_loss, re_form=True, cause=_STALLED)
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
        return Decision(end=(Exit.EVALUATION, f"{self.chief}: {text}{place}"))

    def before_forming(self, reports: Iterable[Report], generation: int, progress: Progress) -> Decision | None:
        """The reason why no further generation is formed; None if one is.

        Args:
            reports: of all required tasks.
            generation: the previous one.
        """
        without = progress.generations_without_progress
        if without > self.spec.max_restarts:
            gave_up = f"{counted(without, 'generation')} without a new step (max_restarts)"
            return Decision(end=(Exit.GAVE_UP, f"{gave_up}; last: {self.last_loss}"))
        if repeated := self._repeated_failure(reports, generation, without):
            return repeated
        self.task_lost = False
        return None

    def _repeated_failure(self, reports: Iterable[Report], generation: int, without_progress: int) -> Decision | None:
        """Attributes an error that a lost peer may cause to the task itself if it repeats without a new step while no
        peer is lost. Once, it may be the network."""
        own = [r for r in reports if r.ended_early and r.ended_early == generation and r.blames_peer and r.failure]
        if self.task_lost or not own:
            self.blame_refuted = False
            return None
        if self.blame_refuted and without_progress and (failure := own[0].failure):
            return _failure(own[0].task, failure[0], f"{failure[1]} (twice, and no other task was lost)")
        self.blame_refuted = True
        return None

    def restarts_alone(self, name: str) -> bool:
        return restarts_alone(self.spec, name, self.chief)


def _failure(name: str, code: int, text: str) -> Decision:
    return Decision(end=(failure_code(code), f"{name}: {text}"))
