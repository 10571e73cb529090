"""What a place knows of a job, collected for a verdict. All texts are without secrets already."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from trainer.model_dir.stacks import Stacks
from trainer.protocol.facts import Began, Ended, Entry


@dataclass(frozen=True)
class Moment:
    """Something that happened."""

    text: str
    task: str = ""
    """Empty for the whole job, or the place."""
    time: float | None = None
    """Seconds since 1970."""
    path: str = ""
    """The file of the archive that has it."""


@dataclass(frozen=True)
class TaskEvidence:
    """A task, as its place shows it."""

    state: str
    code: int | None = None
    """The exit code of a process that has ended."""
    reason: str = ""
    """Why it does not run, or how it ended."""
    node: str = ""
    restarts: int = 0
    ended: float | None = None


@dataclass(frozen=True)
class Log:
    """The log of a task, as far as the archive has it."""

    path: str
    text: str
    task: str = ""
    """Empty if each line begins with its task."""


@dataclass
class Evidence:
    """A job at one time."""

    job: str
    place: str
    """Such as `this machine`."""
    phase: str = ""
    """`done`, `failed`, `stopped`, that of the chief, or a state of the place; empty if nothing of the job is there."""
    code: int | None = None
    """The job's exit code, once it is over."""
    message: str = ""
    """The chief's line about the end."""
    chief: str = "chief:0"
    problems: Sequence[str] = ()
    """Why there is nothing of the job, or why it could not begin; one line each."""
    tasks: dict[str, TaskEvidence] = field(default_factory=dict)
    journal: list[Entry] = field(default_factory=list)
    """What the chief has recorded, in order of time."""
    journal_path: str = ""
    """The file of the archive that has it."""
    moments: list[Moment] = field(default_factory=list)
    """What the place has recorded."""
    logs: list[Log] = field(default_factory=list)
    waiting_for: str = ""
    """Tasks that keep the cluster from forming, and why."""
    hangs: list[Stacks] = field(default_factory=list)
    """The stacks of all tasks when the job hung, the newest last."""
    remarks: list[str] = field(default_factory=list)
    """What is worth a look though nothing has failed."""

    @property
    def of_this_start(self) -> list[Entry]:
        """What the chief has recorded since the job began, or began anew."""
        begun = [i for i, each in enumerate(self.journal) if isinstance(each.fact, Began)]
        return self.journal[begun[-1] :] if begun else self.journal

    @property
    def ended(self) -> Ended | None:
        """How the job ended, if its chief has recorded that."""
        return next((each.fact for each in reversed(self.of_this_start) if isinstance(each.fact, Ended)), None)

    def end_task(self, name: str, time: float) -> None:
        """Notes when a task has ended."""
        self.tasks[name] = replace(self.tasks[name], ended=time)


_LINE = re.compile(
    r"(?:(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z) )?"
    r"(?:(?P<task>(?:chief|worker|ps|evaluator):\d+|local) +\| )?(?P<text>.*)"
)
_FRACTION = re.compile(r"\.\d+")


def lines(log: Log) -> Iterator[Moment]:
    """The lines of a log, with the time that Docker, Kubernetes or `trainer local` has put before each."""
    for line in log.text.splitlines():
        match = _LINE.match(line)
        assert match is not None
        yield Moment(match["text"], match["task"] or log.task, seconds(match["time"]), log.path)


def seconds(text: str | None) -> float | None:
    """A time in ISO 8601, such as 2026-01-02T03:04:05.123456789Z, in seconds since 1970; None if it is none."""
    fraction = _FRACTION.search(text or "")
    try:
        # Python 3.10 reads only fractions of three and of six digits.
        when = datetime.fromisoformat(_FRACTION.sub("", text or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return when.replace(tzinfo=when.tzinfo or timezone.utc).timestamp() + float(fraction[0] if fraction else 0)


def clock(time: float | None) -> str:
    """A time for people, in UTC."""
    if time is None or not 0 <= time < 1e11:
        return ""
    return datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
