"""The tasks of a job, as its chief knows them: which have reported, and why one cannot take part."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainer.job.cluster import Task
from trainer.job.names import task_name
from trainer.job.spec import JobSpec
from trainer.protocol.reports import Report
from trainer.supervisor.control_port.peers import hold_seconds
from trainer.supervisor.rendezvous.admission import mismatch

DIFFERS_SECONDS = 10.0
"""A task that differs from its chief ends the job after this time, in which a right one may replace it."""
UNREACHABLE_SECONDS = 60.0
"""The same for a task that reports, and does not answer at its address. A cluster's DNS may give a wrong answer, or
none, for 30 s after a pod has started, and a NetworkPolicy needs seconds to include it."""
NOT_TRIED = "its address was not tried yet"
NAMED = 3
"""Missing tasks that a line names; it counts the rest."""


@dataclass
class Member:
    """A task that has reported."""

    report: Report
    seen: float
    problem: str | None = NOT_TRIED
    """Why it cannot take part, or None."""
    since: float = 0.0
    """When it first reported."""
    silent: bool = False
    notified: bool = False
    """Whether it has been notified that the job is over."""
    left_out: int = 0
    """The generation that ran when it came: it has no part in it."""


CLOCKS_DIFFER_SECONDS = 2.0
"""By how much the clocks of two machines on the wall may differ."""
LATE_SECONDS = 2.0
"""A task whose next report is not later than this still runs."""

Place = Literal["free", "taken", "lost"]


class Membership:
    """Who is there. It decides nothing: that is the rendezvous' part."""

    def __init__(self, spec: JobSpec, task: Task) -> None:
        self._spec, self._digest = spec, task.digest
        self.chief = task_name(*task.chief)
        self.required = [task_name(*member) for member in task.members()]
        self.evaluators = [task_name("evaluator", 0)] if spec.tasks.evaluator else []
        self._following = dict(zip(self.required, [*self.required[1:], self.required[0]], strict=True))
        self._known = {*self.required, *self.evaluators}
        self._awaited = self.required[-1]
        self._hold = hold_seconds(len(self.required), spec.deadlines.task_lost)
        self.members: dict[str, Member] = {}
        self._replaced: set[tuple[str, str]] = set()
        """Tasks with incarnations whose place another one has taken."""
        self.mismatched: dict[str, str] = {}
        """How each task that is refused differs from the chief."""
        self._differs_since: dict[str, float] = {}
        self.unreachable: dict[str, str] = {}
        """Why the chief cannot connect to a task that has never reported."""
        self._next_silence = 0.0
        """No task can become silent before this time: to look through all at each beat would cost a third of it."""
        self.start_lines: dict[str, str] = {}
        """The line that the child of each task printed when it began to train."""

    def refuse(self, report: Report, now: float) -> str | None:
        """Remembers and returns how a task differs from the chief; None if it may take part."""
        chief = self.members.get(self.chief)
        own = chief.report if chief else None
        difference = mismatch(report, own, self._digest, self.required, self._known, self._spec.workload)
        if difference is None:
            self.mismatched.pop(report.task, None)
            self._differs_since.pop(report.task, None)
        elif report.task in self._known and not report.leaving:  # that of an earlier job is on its way out
            self.mismatched[report.task] = difference
            self._differs_since.setdefault(report.task, now)
        return difference

    def counts(self, report: Report) -> bool:
        """Whether a report is of the process that has its task's place."""
        member = self.members.get(report.task)
        return member is not None and member.report.incarnation == report.incarnation

    def place(self, report: Report, now: float) -> Place:
        """Whether a process may have its task's place.

        The last one has it. One that lost it, on a node that could not be reached, does not get it back; one that was
        asked to stop keeps it until its child has ended. A chief that begins may hear the one before first, so times of
        start are compared, as far as the clocks of two machines agree. If the later one's report is late, the earlier
        one waits; if the later one is lost, the earlier one takes its place: the times may come from wrong clocks.
        """
        member = self.members.get(report.task)
        if (report.task, report.incarnation) in self._replaced:
            return "lost"
        if member is None or self.counts(report):
            return "free"
        late = now - member.seen > self._hold + LATE_SECONDS
        if report.started < member.report.started - CLOCKS_DIFFER_SECONDS:
            if late:
                return "free" if now - member.seen > self._spec.deadlines.task_lost else "taken"
            self._replaced.add((report.task, report.incarnation))
            return "lost"
        return "taken" if member.report.leaving and member.report.generation and not late else "free"

    def add(self, report: Report, now: float) -> Member:
        """Adds a member, or replaces it by its next supervisor."""
        if (last := self.members.get(report.task)) is not None:
            self._replaced.add((last.report.task, last.report.incarnation))
        member = self.members[report.task] = Member(report, now, since=now)
        if report.task in self.evaluators:
            member.problem = None
        return member

    def heard(self, member: Member, report: Report, now: float) -> None:
        """Takes a member's newest report."""
        member.report, member.seen, member.silent = report, now, False
        if report.status.line:
            self.start_lines[report.task] = report.status.line

    def following(self, task: str) -> int:
        """The port for gradients of the task that follows this one in the ring, or 0."""
        following = self.members.get(self._following.get(task, ""))
        return following.report.gradients if following else 0

    def last_heard(self) -> dict[str, float]:
        """When each required task that is not silent last reported."""
        return {name: self.members[name].seen for name in self.required if not self.members[name].silent}

    def newly_silent(self, now: float) -> list[str]:
        """Tasks that have not reported for deadlines.task_lost, each once until it reports again."""
        if now <= self._next_silence:
            return []
        seconds = self._spec.deadlines.task_lost
        silent = [name for name, seen in self.last_heard().items() if now - seen > seconds]
        for name in silent:
            self.members[name].silent = True
        self._next_silence = min(self.last_heard().values(), default=now) + seconds
        return silent

    def silent(self) -> list[str]:
        """Tasks that have not reported for deadlines.task_lost."""
        return [name for name in self.required if name in self.members and self.members[name].silent]

    def unfinished(self, generation: int) -> list[str]:
        """The tasks whose programs must still exit with 0 in this generation before the job has succeeded."""
        needed = self.required if self._spec.success == "all_workers" else [self.chief]
        programs = [name for name in needed if not name.startswith("ps:")]
        return [name for name in programs if self.members[name].report.finished != generation]

    def all_ready(self, now: float) -> bool:
        """Checks the task that it last waited for first; scanning all N on each of N reports is O(N²)."""
        if self._why_missing(self._awaited, now):
            return False
        awaited = next((name for name in self.required if self._why_missing(name, now)), None)
        self._awaited = awaited or self._awaited
        return awaited is None

    def missing(self, now: float) -> dict[str, str]:
        """Tasks that keep the cluster from forming, and why."""
        return {name: why for name in self.required if (why := self._why_missing(name, now))}

    def waiting_for(self, now: float) -> str:
        """The missing tasks, each with the reason, in one line whose length has a limit."""
        return _listed(self.missing(now))

    def summary(self, now: float) -> str:
        """The same, with the number of tasks that are ready."""
        missing, total = self.missing(now), len(self.required)
        return f"{total - len(missing):,} of {total:,} tasks are ready; {_listed(missing)}"

    def wrong(self, since: float, now: float) -> dict[str, str]:
        """Missing tasks that are there but wrong, for longer than it takes until a right one may be there.

        Args:
            since: when the cluster began to form.
        """
        return {
            name: why
            for name in self.required
            if (seconds := self._wrong_seconds(name, since, now)) is not None
            and seconds > self._limit(name)
            and (why := self._why_missing(name, now))
        }

    def any_wrong(self, now: float) -> bool:
        """Whether a missing task is there but wrong."""
        return any(self._wrong_seconds(name, now, now) is not None for name in self.missing(now))

    def _wrong_seconds(self, name: str, since: float, now: float) -> float | None:
        """For how long a missing task has been there and wrong; None if it is not there, or only not ready yet."""
        if name in self.mismatched:
            return now - max(since, self._differs_since[name])
        member = self.members.get(name)
        if member is None or member.problem in (None, NOT_TRIED) or now - member.seen > self._spec.deadlines.task_lost:
            return None
        return now - max(since, member.since)

    def _limit(self, name: str) -> float:
        return DIFFERS_SECONDS if name in self.mismatched else UNREACHABLE_SECONDS

    def formed(self) -> None:
        """Forgets what was wrong before a generation formed."""
        self.mismatched.clear()
        self._differs_since.clear()

    def _why_missing(self, name: str, now: float) -> str | None:
        member = self.members.get(name)
        if member is None:
            return self.mismatched.get(name) or f"has not reported ({self.unreachable.get(name, 'not dialled yet')})"
        if now - member.seen > self._spec.deadlines.task_lost:
            return self.mismatched.get(name) or f"silent for {now - member.seen:.0f} s"
        if member.problem is not None:
            return member.problem
        if member.report.status.copying:
            return member.report.status.copying
        if member.report.generation:
            return "its child of the last generation still runs"
        return "was asked to stop" if member.report.leaving else None


def _listed(missing: Mapping[str, str]) -> str:
    named = [f"{name}: {why}" for name, why in itertools.islice(missing.items(), NAMED)]
    rest = len(missing) - len(named)
    return "; ".join([*named, *([f"and {rest:,} other{'s' if rest > 1 else ''}"] if rest else [])])
