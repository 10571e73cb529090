"""How long a job waits for tasks that are missing or wrong, and the error with which it then ends."""

from __future__ import annotations

from trainer.job.errors import Exit
from trainer.job.spec import JobSpec
from trainer.supervisor.rendezvous.membership import Membership

WRONG_TASKS_POLL_SECONDS = 0.5
"""Time between two looks for tasks that are wrong, which go through all tasks."""


class Waiting:
    """The waits of a rendezvous, with its clock."""

    def __init__(self, spec: JobSpec, tasks: Membership, now: float) -> None:
        self._spec, self._tasks = spec, tasks
        self._formed = False
        """Whether this chief has formed a generation."""
        self._wrong: set[str] = set()
        """Tasks that have come back to a running job, and cannot take part."""
        self._looked = float("-inf")
        self.begin(now)

    def begin(self, now: float) -> None:
        """The chief is ready, and waits for the others from now on."""
        self.begun = now
        self.forming(now)

    def forming(self, now: float) -> None:
        """The cluster begins to form."""
        self._forming_since = self._since = now

    def formed(self) -> None:
        """A generation has formed."""
        self._formed = True

    def extend(self, now: float) -> None:
        """A task makes progress with the copies of its data: the deadline starts again."""
        self._since = now

    def give_up(self, now: float) -> tuple[Exit, str] | None:
        """The error of a job whose cluster cannot form: a task is there but wrong, or the deadline has passed."""
        if wrong := self._tasks.wrong(self._forming_since, now):
            name, why = next(iter(wrong.items()))
            return Exit.MISMATCH, f"the cluster cannot form: {name}: {why}"
        name = "rejoin" if self._formed else "start"
        seconds = self._spec.deadlines.rejoin if self._formed else self._spec.deadlines.start
        if now - self._since <= seconds:
            return None
        code = Exit.MISMATCH if self._tasks.any_wrong(now) else Exit.MISSING
        waited = f"after {seconds:g} s (deadlines.{name})"
        return code, f"the cluster did not form {waited}: {self._tasks.waiting_for(now)}"

    def give_up_success(self, generation: int, now: float) -> tuple[Exit, str] | None:
        """The error of a job whose chief's program is done, while a worker whose program must be done too is lost."""
        if self._spec.success != "all_workers" or self._tasks.chief in (needed := self._tasks.unfinished(generation)):
            return None
        seconds, members = self._spec.deadlines.rejoin, self._tasks.members
        lost = [name for name in needed if members[name].silent and now - members[name].seen > seconds]
        if not lost:
            return None
        return Exit.MISSING, (
            f"{lost[0]} did not come back within {seconds:g} s (deadlines.rejoin), and its program has to exit "
            f"with 0 (success: all_workers): {self._tasks.missing(now)[lost[0]]}"
        )

    def newly_wrong(self, now: float) -> dict[str, str]:
        """Workers that have come back to a running job and cannot take part, with the reason, each once.

        They end no job that trains well without them: one that does not makes no steps, forms again, and ends then.
        """
        if now - self._looked < WRONG_TASKS_POLL_SECONDS:
            return {}
        self._looked = now
        wrong = self._tasks.wrong(self.begun, now)
        new = {name: wrong[name] for name in sorted(wrong.keys() - self._wrong)}
        self._wrong = set(wrong)
        return new
