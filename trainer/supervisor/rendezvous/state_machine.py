"""The chief's state of the job: the tasks that are present, and the generation that runs.

A state machine: its input is reports and the clock, its output replies. Only the function `resume` reads a file. Every
supervisor, including the chief's own, reports and executes the reply:

    forming    kill a running child, be ready
    running    run a child of this generation
    done, failed    exit, with this code

membership.py knows which tasks are present, and waiting.py for how long the job waits for the others; policy.py decides
the consequences of failures; progress.py watches whether training advances.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from trainer.job.cluster import Task
from trainer.job.errors import Exit
from trainer.job.spec import JobSpec
from trainer.protocol.child import ChildStatus
from trainer.protocol.facts import Cause, Ended, Fact, Formed, Hung, Loss, Lost, Note
from trainer.protocol.reports import Reply, Report
from trainer.protocol.types import Phase, plain_text
from trainer.supervisor.rendezvous.chronicle import Chronicle
from trainer.supervisor.rendezvous.first_cause import Deaths
from trainer.supervisor.rendezvous.gathering import Gathering, Why
from trainer.supervisor.rendezvous.membership import Member, Membership
from trainer.supervisor.rendezvous.policy import UNSEEN_PROGRESS, Decision, End, FailurePolicy, failure
from trainer.supervisor.rendezvous.progress import Progress, ProgressWatch
from trainer.supervisor.rendezvous.returns import Returns, Scores
from trainer.supervisor.rendezvous.waiting import Waiting

UNDISTURBED_SECONDS = 600.0
"""A job whose progress is not seen counts as one that advances after this time without a loss. The kubelet resets the
back-off of a container after as long (kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle)."""
_UNKNOWN = Loss(Cause.EXITED)
"""The loss of a task whose report says no more."""


class Rendezvous:
    """The lifecycle of a job. All times are of one monotonic clock, in seconds."""

    def __init__(
        self,
        spec: JobSpec,
        task: Task,
        generation: int,
        now: float,
        resume: Callable[[], int] = lambda: 0,
        progress: Progress | None = None,
        advanced: Callable[[], bool | None] = lambda: False,
        chronicle: Chronicle | None = None,
    ) -> None:
        """
        Args:
            generation: the previous one.
            resume: returns the step of the newest checkpoint.
            advanced: for a program: whether its files or output show progress since the last call; None if they never
                have.
        """
        self.spec, self._resume = spec, resume
        self.tasks = Membership(spec, task)
        self.phase: Phase = "forming"
        self.generation = generation
        self.resume_step = 0
        self.version = 1
        self.term = 0
        """Number of the chief's lease of model_dir."""
        self.code, self.message = Exit.OK, ""
        self.chronicle = chronicle or Chronicle()
        self.gathering = Gathering()
        self.stopping = False
        """Whether the chief itself was asked to stop: a task that leaves after that is not lost."""
        self.settled = False
        """Whether this chief decides nothing more: it writes the result, or has left the job to the next chief."""
        self.waiting = Waiting(spec, self.tasks, now)
        self.progress = progress or Progress()
        self.watch = ProgressWatch(self.progress, now)
        self.policy = FailurePolicy(spec, self.tasks.evaluators, self.tasks.chief)
        self._advanced = advanced
        self._undisturbed_since = now
        """When the generation formed, or a task was lost since."""
        self._held: tuple[str, Loss] | None = None
        """A task and its loss: the job acts on it once it has the stacks of the peer that is missed."""
        self._deaths = Deaths()
        self._returns, self._scores = Returns(), Scores()
        self._told_unseen = False

    def begin(self, now: float) -> None:
        """The chief is ready, which may have taken longer than any deadline: from now on it waits for the others."""
        self.waiting.begin(now)

    def take_over(self, now: float, *, handed_over: bool = False) -> None:
        """An earlier chief was lost while the job ran, or was asked to stop and has left the job to this one."""
        self.policy.task_lost = True
        cause = Cause.ASKED_TO_STOP if handed_over else Cause.SUPERVISOR_RESTARTED
        self._lost(self.tasks.chief, Loss(cause), now)

    def report(self, report: Report, now: float, workers: Mapping[str, ChildStatus] | None = None) -> Reply:
        """Handles one report; returns the reply to that task.

        Args:
            workers: the measurements of each ps-worker, if the report is the chief's own.
        """
        if difference := self.tasks.refuse(report, now):
            return Reply("failed", 0, 0, self.version, Exit.MISMATCH, difference, refused=True, term=self.term)
        if (place := self.tasks.place(report, now)) == "lost":
            text = f"{report.task}: another process has taken this one's place, so this one ends"
            return Reply("failed", 0, 0, self.version, Exit.REPLACED, text, refused=True, term=self.term)
        if place == "taken":
            return Reply("forming", self.generation, 0, self.version, term=self.term)
        member = self.tasks.members.get(report.task)
        if member is not None and member.report.incarnation == report.incarnation:
            if report.number < member.report.number:
                return self.reply(report.task)  # late, or a repetition
            if report.restarts > member.report.restarts and self.phase == "running":
                self._lost(report.task, report.restarted_for or _UNKNOWN, now)
        else:
            member = self._admit(report, now)
        if report.status.copying != member.report.status.copying:
            self.waiting.extend(now)
        self._look_at_news(member.report, report, now)
        self.tasks.heard(member, report, now)
        self.gathering.take(report)
        ended_early = report.ended_early == self.generation != 0
        misses_a_peer = ended_early and self.phase == "running" and self.policy.misses_a_peer(report)
        hangs = report.hangs and report.generation == self.generation and report.task not in self.tasks.evaluators
        if hangs or misses_a_peer:
            self.ask_for_stacks(now, "silence")
        if self._program_done(report):
            self._deaths.done(report.task, now)
        if failure := self.policy.failed(report):
            self._apply(failure, now)
        elif self._program_ended(report):
            self._deaths.add(report, now)
        elif ended_early:
            loss = report.loss or _UNKNOWN
            self.policy.task_lost |= not loss.blames_peer
            if misses_a_peer and self.gathering.number:
                self._held = self._held or (report.task, loss)  # a new generation would end that peer's child
            elif self.phase == "running":
                self._lost(report.task, loss, now)
        elif report.leaving and self.phase == "running" and report.generation != self.generation:
            self._apply(self.policy.leaves(report), now)
        if report.task == self.tasks.chief:
            before = self.progress.step
            self.policy.stepped(self.watch.update(report.status, workers or {}, self.resume_step, now))
            if not self.spec.runs.chief_watches and self.progress.step > before:
                self.policy.lives_without_step.clear()
        elif report.generation == self.generation and report.task not in self.tasks.evaluators:
            self._look_at_index(report, now)
        self._form_if_ready(now)  # now, because all tasks wait for it; timed events can wait for the chief's beat
        member.notified = self.over
        return self.reply(report.task)

    def _program_ended(self, report: Report) -> bool:
        """Whether a report is about the end of a program that may be the consequence of another one's."""
        if not self.spec.runs.end_together or self.phase != "running" or report.task in self.tasks.evaluators:
            return False
        return report.ended_early == self.generation

    def _program_done(self, report: Report) -> bool:
        """Whether a report is that a program has exited with 0 without which the others cannot go on."""
        if not self.spec.runs.end_together or self.phase != "running" or report.finished != self.generation:
            return False
        return report.task in self.tasks.required and not self.policy.restarts_alone(report.task)

    def _judge(self, now: float) -> None:
        """Acts on the first cause of the programs' ends, once it is known."""
        for name in self._deaths.newly_early(now):
            self.note(Note(f"{name}: its program has ended with exit code 0, and those of the others still run", name))
        if not self._deaths or (cause := self._deaths.cause(self.tasks.last_heard(), now)) is None:
            return
        loss = cause.loss or _UNKNOWN
        if loss.ends_the_job:
            self._fail(failure(cause.task, loss))
            return
        self.policy.task_lost |= not loss.blames_peer
        waited = loss.blames_peer or (loss.cause is Cause.HANG and loss.setting == "deadlines.progress")
        self.policy.ended_before = self._deaths.before(cause) if waited else None
        self._lost(cause.task, loss, now)

    def _look_at_index(self, report: Report, now: float) -> None:
        """Another machine may have no index of the files yet: then all tasks wait until that task has made its own."""
        if self.watch.indexes(report.task, report.status.indexed, now):
            self.note(Note(f"the job waits for {self.watch.waits_for}, which indexes its files", report.task))

    def _admit(self, report: Report, now: float) -> Member:
        """A new member: its first report, or the first one since its supervisor was restarted."""
        if report.task in self.tasks.members:
            self.policy.task_lost = True
            if self.phase == "running" and report.generation != self.generation:
                self._lost(report.task, Loss(Cause.SUPERVISOR_RESTARTED), now)
        member = self.tasks.add(report, now)
        if self.phase == "running" and not self.policy.restarts_alone(report.task):
            member.left_out = self.generation  # the chief was asked to stop, and the others still save
        return member

    def reply(self, task: str | None = None) -> Reply:
        """The reply to every task, or to this one."""
        if self.code is Exit.REPLACED:  # the other chief knows how the job goes on
            return Reply("forming", self.generation, 0, self.version, term=self.term)
        member = self.tasks.members.get(task) if task else None
        waits = member is not None and self.phase == "running" and member.left_out == self.generation
        return Reply(
            "forming" if waits else self.phase,
            self.generation,
            self.resume_step,
            self.version,
            self.code,
            self.message,
            self.watch.step,
            stacks=self.gathering.number,
            term=self.term,
            following=self.tasks.following(task) if task and self.phase == "running" else 0,
        )

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.phase in ("done", "failed")

    def tick(self, now: float) -> None:
        """Checks the clock: forms the cluster when all tasks are ready, or handles a deadline that has passed."""
        self._look_at_stacks(now)
        if self.phase == "forming":
            self._form_if_ready(now)
            if self.phase == "forming" and (end := self.waiting.give_up(now)):
                self.end(*end)
        elif self.phase == "running":
            for name in self.tasks.newly_silent(now):
                self.policy.task_lost = True
                self._lost(name, Loss(Cause.SILENT, seconds=self.spec.deadlines.task_lost), now, ended=False)
            if self.phase == "running":
                self._judge(now)
                for name, why in self.waiting.newly_wrong(now).items():
                    self.note(Note(f"{name}: {why}; the others continue without it", name))
                if end := self.waiting.give_up_success(self.generation, now):
                    self.end(*end)
            # The supervisor of each task notices a program that has stopped to report.
            if self.spec.runs.chief_watches and self.watch.overdue(self.spec.deadlines, now):
                self.ask_for_stacks(now, "stall")

    def ask_for_stacks(self, now: float, why: Why = "asked") -> None:
        """Asks all tasks for their stacks; the answer is `gathering.last`."""
        if self.gathering.begin(now, why):
            self.version += 1

    def _look_at_stacks(self, now: float) -> None:
        """Takes the answers to the question for stacks: logs which task hangs, and acts on a stall."""
        if (why := self.gathering.close(self.tasks.members, now)) is None:
            return
        self.version += 1
        where = self.gathering.last.text
        if why == "silence" and where:
            self.note(Hung(where))
        held, self._held = self._held, None
        if held and self.phase == "running":
            self._lost(*held, now)
        if why == "stall" and self.phase == "running" and self.watch.overdue(self.spec.deadlines, now):
            self._apply(self.policy.overdue(self.watch, where), now)

    def _form_if_ready(self, now: float) -> None:
        if self.phase == "forming" and self.tasks.all_ready(now):
            self._form(now)

    def _form(self, now: float) -> None:
        reports = [self.tasks.members[name].report for name in self.tasks.required]
        self._look_at_program()
        if refused := self.policy.before_forming(reports, self.generation, self.progress):
            self._apply(refused, now)
            return
        self.generation += 1
        self.resume_step = self._resume()
        self.progress.generations_without_progress += 1
        self.phase = "running"
        self.version += 1
        self.watch.formed(now)
        self._undisturbed_since = now
        self.waiting.formed()
        self.tasks.formed()
        self._deaths.clear()
        self._returns.clear()
        self.note(Formed(self.generation, len(self.tasks.required)))
        self._tell_unseen_progress()

    def reachable(self, name: str, incarnation: str, problem: str | None, now: float) -> None:
        """Records the result of connecting to a member at its address in TF_CONFIG."""
        member = self.tasks.members.get(name)
        if member is not None and member.report.incarnation == incarnation:
            member.problem = problem
            self._form_if_ready(now)

    # Failures and the end. ------------------------------------------------------------------------

    def _lost(self, name: str, loss: Loss, now: float, *, ended: bool = True) -> None:
        if self.stopping:
            return
        if self.policy.unseen_progress and now - self._undisturbed_since > UNDISTURBED_SECONDS:
            self._made_progress()
        self._undisturbed_since = now
        alone = self.policy.restarts_alone(name)
        if alone:
            self._look_at_program()
        self._apply(self.policy.lost(name, loss, ended=ended), now)
        if alone:
            self._tell_unseen_progress()

    def _look_at_program(self) -> None:
        """What the chief's program writes is progress of the whole job, also for tasks that restart alone."""
        advanced = self._advanced()
        self.policy.unseen_progress = advanced is None and not self.progress.step
        if advanced:
            self._made_progress()

    def _tell_unseen_progress(self) -> None:
        """Says once, after the first loss, that this job may end though it advances."""
        if self.policy.unseen_progress and self.policy.last and not self._told_unseen and not self.over:
            self._told_unseen = True
            limit = f"the job restarts at most {self.spec.max_restarts} times in a row (max_restarts)"
            self.note(Note(f"{UNSEEN_PROGRESS}; {limit}"))

    def _made_progress(self) -> None:
        self.progress.generations_without_progress = 0
        self.policy.lives_without_step.clear()

    def _apply(self, decision: Decision, now: float) -> None:
        fact = decision.fact
        if fact and decision.restarts and not self.over and not self.stopping:
            self.chronicle.restarts[fact.loss.cause.label] += 1
        if isinstance(fact, Lost):
            self._returns.lost(fact.task, now)
        if decision.re_form:
            self._re_form(decision, now)
        elif fact:
            self.note(fact)
        if decision.end:
            self._fail(decision.end)

    def _re_form(self, decision: Decision, now: float) -> None:
        if self.over or self.settled:
            return
        if decision.fact and not self.stopping:
            self.note(decision.fact)
        self.phase, self._held = "forming", None
        self.version += 1
        self.waiting.forming(now)

    def generation_over(self, now: float) -> None:
        """Ends the generation after the chief's child stopped on request; the remaining tasks wait for the next one."""
        if self.phase == "running":
            self.progress.generations_without_progress = 0
            self._re_form(Decision(), now)

    def _fail(self, end: End) -> None:
        self.end(end.code, end.message, task=end.task, loss=end.loss)

    def end(
        self, code: Exit, message: str, step: int | None = None, *, task: str | None = None, loss: Loss | None = None
    ) -> None:
        """Ends the job. Only the first call has an effect, and none once this chief decides nothing more.

        Args:
            step: the last step of a job that succeeded.
            task: the task that it fails for.
            loss: why it was lost.
        """
        if not self.over and not self.settled:
            self.watch.step = self.watch.step if step is None else step
            self.phase = "done" if code is Exit.OK else "failed"
            self.code = code
            # For the replies: a file name that is not UTF-8 would make them unreadable.
            self.message = plain_text(message + (self._good_checkpoints() if code is Exit.DIVERGED else ""))
            self.version += 1
            self.note(Ended(int(code), self.message, task, loss))

    def lose_place(self) -> None:
        """Another chief has taken this one's place: whatever end this one has found, the other decides."""
        self.phase, self.code = "failed", Exit.REPLACED
        self.message = "another chief has taken this one's place in model_dir: this one writes nothing more and ends"
        self.version += 1

    def _good_checkpoints(self) -> str:
        """The checkpoints of a job that diverged: none holds a value that is not finite (saver.py). Only the chief
        surely has access to them."""
        with contextlib.suppress(OSError):  # the report of the failure must not be lost
            step = self._resume()
            return f"; the checkpoints up to step {step} are good" if step else "; there is no checkpoint yet"
        return ""

    def _look_at_news(self, before: Report, report: Report, now: float) -> None:
        """Notes what a report tells besides a failure."""
        if report.task in self.tasks.evaluators and (scored := self._scores.new(report)):
            self.note(scored)
        if self.phase != "running" or not self.policy.restarts_alone(report.task):
            return
        if back := self._returns.back(before, report, self.generation, now):
            self.note(back)

    def note(self, fact: Fact) -> None:
        """Notes what has happened; who looks at the job takes it from there."""
        self.chronicle.note(fact, self.generation, self.watch.step)
