"""The answer of the control port to GET /status: a task's own status or, from the chief, that of the whole job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Literal

from pydantic import TypeAdapter

from trainer.job.errors import outcome
from trainer.model_dir.files import json_object, typed
from trainer.model_dir.result import JobEvent
from trainer.model_dir.stacks import Stacks
from trainer.protocol.child import FIELDS, ChildStatus, is_set
from trainer.protocol.types import Phase, may_be_sent, plain_text

VERSION = 2
"""Version of /status. It increases when a field is renamed, removed or changes its meaning, not when one is added."""

TaskState = Literal["absent", "waiting", "running", "lost", "done"]
Cause = Literal["input", "compute", "network"]


@dataclass
class Shares:
    """Shares of a task's time, from 0 to 1, over the last 20 s or more of steps; null if unknown."""

    input: float | None
    """Its steps wait for their data."""
    compute: float | None
    """All else: its gradients, its updates and the parts that are unknown."""
    wait: float | None
    """It has its gradients, and waits for those of the others."""
    network: float | None
    """Gradients are exchanged, also while no task is late."""
    between: float | None
    """Share of the time between steps: checkpoints, validation, callbacks."""


@dataclass
class Straggler:
    """A task that makes the others wait or, of ps-workers, is slower than they are."""

    task: str
    cause: Cause
    """What its steps spend more time on."""
    text: str


@dataclass(kw_only=True)
class TaskRow(ChildStatus):
    """The chief's record of a task, and the status of its child."""

    state: TaskState
    generation: int = 0
    """Generation of its running child; 0 if none runs."""
    restarts: int = 0
    """Restarts of its child alone, without a new generation, since its supervisor started."""
    standby: bool = False
    """Whether a spare child has imported TensorFlow."""
    shares: Shares | None = None
    """What its steps spend their time on; null if it makes none."""


@dataclass(kw_only=True)
class TaskStatus(ChildStatus):
    """A task's own status, and that of its child."""

    job: str
    task: str
    strategy: str
    phase: Phase
    """The phase in the chief's last reply."""
    generation: int
    """Generation of its child, also of one that has ended; 0 before the first."""
    restarts: int
    """Restarts of its child alone, without a new generation, since its supervisor started."""
    standby: bool
    version: int = VERSION
    """Version of this format."""

    def document(self) -> dict[str, object]:
        """The JSON object as sent, without what is not known of the child."""
        return _sent(asdict(self))


@dataclass
class End:
    """How the job ended."""

    code: int
    """Exit code of all its tasks."""
    message: str


@dataclass(kw_only=True)
class JobStatus(TaskStatus):
    """The status of the whole job, from its chief. Of its figures `examples_per_second` is the rate of all tasks
    together; in `tasks` it is that of each."""

    last_checkpoint: int | None
    """Step of the newest complete checkpoint."""
    checkpoint_time: float | None = None
    """When it was written, in seconds since 1970."""
    checkpoint_bytes: int | None = None
    """Its size."""
    restarts_by_cause: dict[str, int] = field(default_factory=dict)
    """Restarts of the cluster and of tasks that restart alone, since the job was started."""
    waiting_for: str | None
    """Tasks that prevent the cluster from forming, and why; null once it runs."""
    seconds: float
    """Seconds since the job's start."""
    events: list[JobEvent]
    """The newest."""
    tasks: dict[str, TaskRow]
    end: End | None
    """Null while the job runs."""
    seconds_left: float | None = None
    """Estimated seconds until the last step is made; null while that is unknown."""
    goodput: float | None = None
    """Share of the job's time in which it made steps that had not been made before."""
    straggler: Straggler | None = None
    """The slow task, if there is one."""
    stalled: str | None = None
    """How long there has been no new step, if that is three times as long as usual or more, and where the tasks are."""
    hangs: list[Stacks] = field(default_factory=list)
    """The stacks of all tasks when the job hung, the newest."""
    warnings: list[str] = field(default_factory=list)
    """Dangers: reports are not signed, or the cluster does not enforce the job's NetworkPolicy."""
    refused_reports: dict[str, int] = field(default_factory=dict)
    """Requests that are no report of this job's tasks, by reason: unsigned, malformed, too_long."""

    @property
    def shown_phase(self) -> str:
        """The phase for people: the job that was stopped has not failed."""
        return outcome(self.end.code) if self.end else self.phase

    def document(self) -> dict[str, object]:
        status = asdict(self)
        rows = {name: _sent(row) for name, row in status["tasks"].items()}
        return {**_sent(status), "last_checkpoint": self.last_checkpoint, "tasks": rows}


@cache
def _adapter() -> TypeAdapter[JobStatus]:
    return TypeAdapter(JobStatus)


def read(body: str | bytes) -> JobStatus:
    """A chief's answer to GET /status, also one of version 1.

    Raises:
        ValueError: it is none, or that of a newer version; the reason is one line.
    """
    return parse(json_object(body))


def parse(found: Mapping[str, object]) -> JobStatus:
    """The status in a JSON object, as `read`."""
    return typed(_adapter(), upgraded(found), VERSION)


def upgraded(found: Mapping[str, object]) -> Mapping[str, object]:
    """The JSON object of this version: in version 1, and before there were versions, figures were beside the other
    fields."""
    if found.get("version", 1) != 1:
        return found
    made = {**_nested(found, JobStatus), "version": VERSION}
    if isinstance(rows := found.get("tasks"), dict):
        made["tasks"] = {name: _nested(row, TaskRow) if isinstance(row, dict) else row for name, row in rows.items()}
    return made


def _sent(row: Mapping[str, object]) -> dict[str, object]:
    """Without what is not known of the child, and with texts and figures that a reader takes: the user's code has
    written them."""
    known = {name: value for name, value in row.items() if name not in FIELDS or is_set(value)}
    texts = {name: plain_text(value) for name, value in known.items() if isinstance(value, str)}
    figures = row["figures"]
    return {**known, **texts, "figures": may_be_sent(figures if isinstance(figures, dict) else {})}


_NEW_IN_2 = {"figures", "seconds_left", "goodput"}
"""Fields that were figures of the user's in version 1."""


def _nested(found: Mapping[str, object], kind: type[TaskStatus | TaskRow]) -> dict[str, object]:
    names = {each.name for each in fields(kind)} - _NEW_IN_2
    known = {name: value for name, value in found.items() if name in names}
    return {**known, "figures": may_be_sent({name: value for name, value in found.items() if name not in names})}
