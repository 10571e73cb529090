"""The chief's picture of the job: who is there, whether they agree, and which generation runs.

A pure state machine: reports and the clock go in, replies come out. Every supervisor, the chief's own too,
only asks; what it has to do follows from the reply:

    forming    kill a running child, be ready
    running    run a child of this generation
    done, failed    end, with this code
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from trainer.job.errors import Exit
from trainer.job.names import task_name
from trainer.job.spec import JobSpec
from trainer.job.tf_config import Task
from trainer.protocol.reports import Phase, Reply, Report, failure_code

EVENTS_KEPT = 50


@dataclass
class Progress:
    """What tells a crash that comes again and again from several different ones."""

    step: int = 0
    """The highest that was ever reached, over all generations."""
    fruitless: int = 0
    """Generations in a row, the present one included, that did not get past it."""


@dataclass
class Member:
    report: Report
    seen: float
    problem: str | None = "its address was not tried yet"
    """Why it cannot take part, or None."""
    silent: bool = False
    told_end: bool = False


class Rendezvous:
    """All times are of one monotonic clock, in seconds."""

    def __init__(
        self,
        spec: JobSpec,
        task: Task,
        generation: int,
        now: float,
        resume: Callable[[], int] = lambda: 0,
        progress: Progress | None = None,
    ) -> None:
        """`generation` is the last one there was; `resume` gives the step of the newest checkpoint."""
        self.spec, self.task, self._resume = spec, task, resume
        self.required = [task_name(*member) for member in task.members()]
        self._digest = task.digest
        self.evaluators = [task_name("evaluator", 0)] if spec.tasks.evaluator else []
        self.members: dict[str, Member] = {}
        self.strangers: dict[str, str] = {}
        self.no_shows: dict[str, str] = {}
        """Why a task that never came cannot be dialled either."""
        self.phase: Phase = "forming"
        self.generation = generation
        self.resume_step = 0
        self.version = 1
        self.code, self.message = Exit.OK, ""
        self.events: list[dict[str, Any]] = []
        """The newest."""
        self.noted = 0
        """How many there ever were."""
        self.start_lines: dict[str, str] = {}
        self._begun = self._forming_since = now
        self._known = {*self.required, *self.evaluators}
        self._awaited = self.required[-1]
        self._step, self._finishing, self._step_at = 0, False, now
        self.progress = progress or Progress()
        self.stopping = False
        """Whether the chief itself was told to stop: what is lost from then on is no loss."""
        self._last_loss = "unknown"
        self._task_lost = False
        """Whether a task of this generation was lost for another reason than a lost peer."""
        self._blame_refuted = False
        """Whether the generation before ended with an error that a lost peer causes, though none was lost."""
        self._stepless: Counter[str] = Counter(name for name in self.required if self._restarts_alone(name))
        """Lives of a ps-worker in a row, the present one included, without a step of its own."""
        self._worker_steps: dict[str, Any] = {}

    def report(self, report: Report, now: float) -> Reply:
        """Takes one report and says what that task has to do."""
        if difference := self._difference(report):
            if report.task in self._known:
                self.strangers[report.task] = difference
            return Reply("failed", 0, 0, self.version, Exit.MISMATCH, difference)
        self.strangers.pop(report.task, None)
        member = self.members.get(report.task)
        same_process = member is not None and member.report.incarnation == report.incarnation
        if member is not None and same_process and report.number < member.report.number:
            return self.reply()
        if member is None or not same_process:
            self._task_lost |= member is not None
            if member is not None and self.phase == "running" and report.generation != self.generation:
                self._lost(report.task, "its supervisor was restarted", now)
            member = self.members[report.task] = Member(report, now)
            if report.task in self.evaluators:
                member.problem = None
        elif report.restarts > member.report.restarts and self.phase == "running":
            self._lost(report.task, report.reason, now)
        member.report, member.seen, member.silent = report, now, False
        if report.failure is not None and not report.blames_peer and report.task not in self.evaluators:
            self._fail(report.task, *report.failure)
        elif report.lost and report.lost == self.generation:
            self._task_lost |= not report.blames_peer
            if self.phase == "running":
                self._lost(report.task, report.reason, now)
        elif report.leaving and self.phase == "running" and report.generation != self.generation:
            self._task_lost = True
            # After a stop that all agreed on, the chief's child still saves what they trained.
            if (
                not report.status.get("stopped_well")
                and not self._restarts_alone(report.task)
                and report.task not in self.evaluators
            ):
                self._re_form(f"{report.task} was told to stop, re-forming", now)
        if line := report.status.get("line"):
            self.start_lines[report.task] = line
        if report.task == task_name(*self.task.chief):
            self._watch_progress(report.status, now)
        if self.phase == "forming":
            self.tick(now)  # at once, for all wait for it; what else depends on the clock can wait for the chief's beat
        member.told_end = self.phase in ("done", "failed")
        return self.reply()

    def reply(self) -> Reply:
        return Reply(self.phase, self.generation, self.resume_step, self.version, self.code, self.message, self._step)

    def tick(self, now: float) -> None:
        """Looks at the clock: forms the cluster when all are ready, or ends the job at a deadline."""
        deadlines = self.spec.deadlines
        if self.phase == "forming":
            if self._all_ready(now):
                self._form(now)
            elif now - self._forming_since > deadlines.rendezvous:
                code = Exit.MISMATCH if any(name in self.strangers for name in self.missing(now)) else Exit.MISSING
                waited = f"after {deadlines.rendezvous:g} s (deadlines.rendezvous)"
                self.end(code, f"the cluster did not form {waited}: {self.waiting_for(now)}")
        elif self.phase == "running":
            for name in self.required:
                member = self.members[name]
                if now - member.seen > deadlines.task_lost and not member.silent:
                    member.silent = self._task_lost = True
                    self._lost(name, f"silent for {deadlines.task_lost:g} s", now, ended=False)
            if self._finishing:
                if now - self._step_at > deadlines.evaluation:
                    self.end(Exit.EVALUATION, self._unfinished())
            elif now - self._step_at > deadlines.progress:
                self._last_loss = f"no new step for {deadlines.progress:g} s (deadlines.progress)"
                self._re_form(self._last_loss, now)

    def _all_ready(self, now: float) -> bool:
        """Asks first for the task that it last waited for: to look through all at each report would be work for N²."""
        if self._why_missing(self._awaited, now):
            return False
        awaited = next((name for name in self.required if self._why_missing(name, now)), None)
        self._awaited = awaited or self._awaited
        return awaited is None

    def silent(self) -> list[str]:
        """Tasks that have not reported for deadlines.task_lost."""
        return [name for name in self.required if name in self.members and self.members[name].silent]

    def missing(self, now: float) -> dict[str, str]:
        """Tasks that keep the cluster from forming, and why."""
        return {name: why for name in self.required if (why := self._why_missing(name, now))}

    def waiting_for(self, now: float) -> str:
        return "; ".join(f"{name}: {why}" for name, why in self.missing(now).items())

    def note(self, text: str) -> None:
        self.events = [*self.events[1 - EVENTS_KEPT :], {"time": time.time(), "text": text}]
        self.noted += 1

    def reachable(self, name: str, incarnation: str, problem: str | None, now: float) -> None:
        """The verdict of dialling a member back at the address that TF_CONFIG gives it."""
        member = self.members.get(name)
        if member is not None and member.report.incarnation == incarnation:
            member.problem = problem
            self.tick(now)

    def generation_over(self, now: float) -> None:
        """The chief's child stopped as it was asked to; whoever stays waits for the next generation."""
        if self.phase == "running":
            self.progress.fruitless = 0
            self._re_form("", now)

    def end(self, code: Exit, message: str, step: int | None = None) -> None:
        """The job is over, at this step if it succeeded. The first verdict stands."""
        if self.phase not in ("done", "failed"):
            self._step = self._step if step is None else step
            self.phase = "done" if code is Exit.OK else "failed"
            self.code, self.message = code, message
            self.version += 1

    def _fail(self, name: str, code: int, text: str) -> None:
        self.end(failure_code(code), f"{name}: {text}")

    def untold(self, now: float, leaving: bool = False) -> list[str]:
        """Tasks that may still ask, and do not know that the job ended.

        Who was lost, or was told to stop, may come back, as a new pod does: it is expected for as long as it would wait
        for its chief. So is who did not come yet, if the job ended that early.

        Args:
            leaving: the chief itself is told to stop, so all are: only those who are there are waited for.
        """
        deadlines = self.spec.deadlines
        expected = not leaving and self.code not in (Exit.STOPPED, Exit.MISSING, Exit.MISMATCH)
        patience = deadlines.chief_lost if expected else deadlines.task_lost
        chief = task_name(*self.task.chief)
        never = [name for name in self.required if name not in self.members and name != chief]
        return [
            *(never if expected and now - self._begun <= patience else []),
            *(
                name
                for name, member in self.members.items()
                if not member.told_end and now - member.seen <= patience and (expected or not member.report.leaving)
            ),
        ]

    def status(self, now: float) -> dict[str, Any]:
        """Per task, for /status."""
        return {name: self._task_status(name, now) for name in (*self.required, *self.evaluators)}

    def _task_status(self, name: str, now: float) -> dict[str, Any]:
        member = self.members.get(name)
        if member is None:
            return {"state": "absent", "generation": 0, "restarts": 0}
        lost = now - member.seen > self.spec.deadlines.task_lost
        running = member.report.generation == self.generation and self.phase == "running"
        state = "done" if self.phase == "done" else "lost" if lost else "running" if running else "waiting"
        report = asdict(member.report)
        return {**report["status"], "state": state, **{k: report[k] for k in ("generation", "restarts", "standby")}}

    def _why_missing(self, name: str, now: float) -> str | None:
        member = self.members.get(name)
        if member is None:
            return self.strangers.get(name) or f"never came ({self.no_shows.get(name, 'not dialled yet')})"
        if now - member.seen > self.spec.deadlines.task_lost:
            return self.strangers.get(name) or f"silent for {now - member.seen:.0f} s"
        if member.problem is not None:
            return member.problem
        if member.report.generation:
            return "its child of the last generation still runs"
        return "was told to stop" if member.report.leaving else None

    def _difference(self, report: Report) -> str | None:
        """How a task differs from this one, in one line; None if it may take part."""
        if report.task not in self._known:
            return f"{report.task} is not in the chief's cluster ({', '.join(self.required)}); compare their TF_CONFIGs"
        if report.cluster != self._digest:
            return (
                f"{report.task} was given another cluster than the chief; all tasks need the same 'cluster' in "
                "TF_CONFIG, in the same order"
            )
        chief = self.members.get(task_name(*self.task.chief))
        own = chief.report if chief else report
        if report.spec != own.spec:
            return f"{report.task} was given another job spec than the chief; give all tasks the same"
        if report.workload != own.workload:
            name = self.spec.workload
            return (
                f"{report.task} has another workload file ({name}) than the chief; give all tasks the same file, and "
                "start the job again if it was changed meanwhile"
            )
        for package, version in own.versions.items():
            if report.versions.get(package) != version:
                theirs = report.versions.get(package)
                return f"{report.task} has {package} {theirs}, the chief {version}; use one image for all tasks"
        return None

    def _form(self, now: float) -> None:
        if (fruitless := self.progress.fruitless) > self.spec.max_restarts:
            given_up = f"{fruitless} generations without a new step (max_restarts)"
            self.end(Exit.GAVE_UP, f"{given_up}; last: {self._last_loss}")
            return
        if self._ends_by_its_own_failure():
            return
        self.generation += 1
        self.resume_step = self._resume()
        self.progress.fruitless += 1
        self._task_lost = False
        self.phase = "running"
        self.version += 1
        self._step_at = now
        self.strangers.clear()
        self.note(f"generation {self.generation} formed: {len(self.required)} tasks")

    def _ends_by_its_own_failure(self) -> bool:
        """An error that a lost peer causes, and that comes back without a new step while no peer is lost, is the
        task's own. Once may be the network."""
        reports = [self.members[name].report for name in self.required]
        own = [r for r in reports if r.lost and r.lost == self.generation and r.blames_peer and r.failure]
        if self._task_lost or not own:
            self._blame_refuted = False
            return False
        if self._blame_refuted and self.progress.fruitless and (failure := own[0].failure):
            self._fail(own[0].task, failure[0], f"{failure[1]} (twice, and no other task was lost)")
            return True
        self._blame_refuted = True
        return False

    def _lost(self, name: str, reason: str, now: float, *, ended: bool = True) -> None:
        """Takes note of a loss; `ended` tells whether the child's life is over, as it is not yet where it is silent."""
        if self.stopping:
            return
        self._last_loss = f"{name} lost ({reason})"
        if self._restarts_alone(name):
            # Its supervisor starts it again; the coordinator gives its closures to the others meanwhile.
            self.note(f"{self._last_loss}; the others go on")
            if not ended:
                return
            if (lives := self._stepless[name]) > self.spec.max_restarts:
                self.end(
                    Exit.GAVE_UP,
                    f"{name} was lost {lives} times in a row without a step (max_restarts); last: {reason}",
                )
            self._stepless[name] += 1
        elif name in self.evaluators:
            self.note(f"{self._last_loss}; nobody waits for it")
        else:
            self._re_form(f"{self._last_loss}, re-forming", now)

    def _restarts_alone(self, name: str) -> bool:
        return self.spec.strategy == "parameter_server" and name.startswith("worker")

    def _re_form(self, text: str, now: float) -> None:
        if self.phase in ("done", "failed"):
            return
        if text and not self.stopping:
            self.note(text)
        self.phase = "forming"
        self.version += 1
        self._forming_since = now

    def _watch_progress(self, status: dict[str, Any], now: float) -> None:
        step, finishing = status.get("step") or 0, bool(status.get("finishing"))
        if (step, finishing) != (self._step, self._finishing):
            self._step, self._finishing, self._step_at = step, finishing, now
            if step > max(self.progress.step, self.resume_step):
                self.progress.step, self.progress.fruitless = step, 0
        for name, row in (status.get("workers") or {}).items():
            if row.get("step") != self._worker_steps.get(name):
                self._worker_steps[name] = row.get("step")
                self._stepless[name] = 0

    def _unfinished(self) -> str:
        return (
            f"{task_name(*self.task.chief)}: the final evaluation and export took longer than "
            f"{self.spec.deadlines.evaluation:g} s (deadlines.evaluation); the trained checkpoint is kept: mend "
            "data('test') or evaluate(), or raise the deadline, and the same command evaluates it"
        )
