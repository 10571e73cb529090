"""What happened to a job, as typed facts: the chief decides by them, and every view of the job is made from them.

The sentence of a fact is made here, once, for people. Nothing reads it back.
"""

# No annotations from __future__: pydantic 2.5 looks for their names in the module of the adapter.

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Enum
from functools import cache
from typing import Annotated, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError

from trainer.job.errors import Exit, TrainerError
from trainer.job.messages import counted, digits
from trainer.protocol.types import LATEST_TIME, STRICT, Code, Text, Word, plain_text


class Cause(str, Enum):
    """Why a task was lost, or a generation ended."""

    OUT_OF_MEMORY = "out_of_memory"
    KILLED = "killed"
    HANG = "hang"
    SILENT = "silent"
    NO_CONTACT = "no_contact"
    SUPERVISOR_RESTARTED = "supervisor_restarted"
    EXITED = "exited"
    PROGRAM_ENDED = "program_ended"
    ERROR = "error"
    PEER_LOST = "peer_lost"
    PEER_SILENT = "peer_silent"
    NOT_STARTED = "not_started"
    ASKED_TO_STOP = "asked_to_stop"
    NO_NEW_STEP = "no_new_step"
    OVERDUE = "overdue"

    @property
    def label(self) -> str:
        """The value of the label `cause` in /metrics."""
        return _LABELS.get(self, self.value)


_CHILD_ENDED = "child_ended"
_LABELS = {
    Cause.NO_CONTACT: "silent",
    Cause.EXITED: _CHILD_ENDED,
    Cause.PROGRAM_ENDED: _CHILD_ENDED,
    Cause.ERROR: _CHILD_ENDED,
    Cause.PEER_LOST: _CHILD_ENDED,
    Cause.PEER_SILENT: _CHILD_ENDED,
    Cause.NOT_STARTED: _CHILD_ENDED,
    Cause.OVERDUE: "hang",
}
"""Labels that stand for several causes, or differ from the cause's own name."""
LABELS = tuple(dict.fromkeys(cause.label for cause in Cause))


@dataclass(frozen=True)
class Loss:
    """How a task's child ended, or why the task cannot go on."""

    __pydantic_config__ = STRICT

    cause: Cause
    text: Text = ""
    """The words of the place: the child's last words, where it hung, the peer's error."""
    error: Text = ""
    """The error of the task itself, of one or more lines, if that is why it ended. It would repeat."""
    code: Code = 0
    """The exit code with which the job ends for that error; 0 if a restart may cure the loss."""
    blames_peer: bool = False
    """Whether a lost peer may have caused the error; only if none was lost is it the task's own."""
    signal: Word | None = None
    """The signal that ended the process, as SIGKILL."""
    status: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    """The exit status of the process."""
    seconds: Annotated[float, Field(ge=0, lt=1e11)] | None = None
    """The length of the silence, or of the wait."""
    setting: Word | None = None
    """The setting that limits it, as deadlines.progress, or that would have prevented it, as tasks.worker.memory."""
    memory: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """The memory limit of the container in bytes."""

    @property
    def ends_the_job(self) -> bool:
        """Whether the error would repeat wherever the task runs."""
        return self.code != Exit.OK and not self.blames_peer

    def __str__(self) -> str:
        """The loss in a few words, as `killed by SIGKILL`."""
        return _SENTENCES[self.cause](self)

    def sendable(self) -> "Loss":
        """The loss with texts of the length and characters that a report may have, and a code that is a failure's."""
        code = int(failure_code(self.code)) if self.code else 0
        return replace(self, text=plain_text(self.text), error=plain_text(self.error), code=code)


def failure_code(code: object) -> Exit:
    """The exit code of a failure, never 0: what a child reports is not validated before."""
    return next((each for each in Exit if each == code and each is not Exit.OK), Exit.BUG)


def failure_of(error: TrainerError) -> Loss:
    """The loss of a task that cannot go on."""
    return Loss(Cause.ERROR, error=str(error), code=int(error.code))


def _out_of_memory(loss: Loss) -> str:
    limit = f" at its limit of {loss.memory / 2**20:.0f} MiB" if loss.memory else ""
    return f"out of memory{limit}, killed by the kernel{f'; raise {loss.setting}' if loss.setting else ''}"


def _hang(loss: Loss) -> str:
    seconds = f"{loss.seconds or 0:g} s"
    silence = f"no report for {seconds} ({loss.setting})" if loss.setting else f"no sign of life for {seconds}"
    return f"{silence}; it {loss.text}" if loss.text else silence


def _no_new_step(loss: Loss) -> str:
    silence = f"no new step for {loss.seconds or 0:g} s ({loss.setting})"
    return f"{silence}; {loss.text}" if loss.text else silence


def _program_ended(loss: Loss) -> str:
    ended = f"exited with code {loss.status}{f' ({loss.signal})' if loss.signal else ''}"
    return f"{ended}: {loss.text}" if loss.text else ended


_SENTENCES: dict[Cause, Callable[[Loss], str]] = {
    Cause.OUT_OF_MEMORY: _out_of_memory,
    Cause.KILLED: lambda loss: f"killed by {loss.signal or 'a signal'}{f': {loss.text}' if loss.text else ''}",
    Cause.HANG: _hang,
    Cause.SILENT: lambda loss: f"silent for {loss.seconds or 0:g} s",
    Cause.NO_CONTACT: lambda loss: f"no contact with the chief for {loss.seconds or 0:.0f} s",
    Cause.SUPERVISOR_RESTARTED: lambda loss: "its supervisor was restarted",
    Cause.EXITED: lambda loss: f"exited by itself with code {loss.status}, without a Python error",
    Cause.PROGRAM_ENDED: _program_ended,
    Cause.ERROR: lambda loss: "; ".join(loss.error.splitlines()) or "an error",
    Cause.PEER_LOST: lambda loss: loss.text or "an error that a lost peer causes",
    Cause.PEER_SILENT: lambda loss: loss.text or "a peer stopped sending heartbeats",
    Cause.NOT_STARTED: lambda loss: f"could not be started: {loss.text}",
    Cause.ASKED_TO_STOP: lambda loss: "was asked to stop",
    Cause.NO_NEW_STEP: _no_new_step,
    Cause.OVERDUE: lambda loss: f"it took longer than {loss.seconds or 0:g} s ({loss.setting})",
}


# Facts. -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fact:
    """Something that happened to the job."""

    kind: ClassVar[str] = ""
    """Its name in the journal, on the page and in events."""
    news: ClassVar[bool] = True
    """Whether it is logged, and one of the job's events in /status and result.json. The others are on the page."""


@dataclass(frozen=True)
class Began(Fact):
    """A job began, or began anew after a stop or a failure. A chief that only takes over begins nothing."""

    kind: ClassVar[str] = "began"
    news: ClassVar[bool] = False
    run: str = ""
    """The run of the job (TRAINER_RUN)."""

    def __str__(self) -> str:
        return "the job began"


@dataclass(frozen=True)
class Formed(Fact):
    """All tasks are present and agree: a generation began."""

    kind: ClassVar[str] = "formed"
    number: int
    """The number of the generation."""
    tasks: int

    def __str__(self) -> str:
        return f"generation {self.number} formed: {counted(self.tasks, 'task')}"


Consequence = Literal["re_forming", "others_continue", "not_awaited"]
_CONSEQUENCES: dict[Consequence, str] = {
    "re_forming": ", re-forming",
    "others_continue": "; the others continue",
    "not_awaited": "; the job does not wait for it",
}


@dataclass(frozen=True)
class Lost(Fact):
    """A task was lost."""

    kind: ClassVar[str] = "lost"
    task: str
    loss: Loss
    then: Consequence

    def __str__(self) -> str:
        lost = f"{self.task} {self.loss}" if self.loss.cause is Cause.ASKED_TO_STOP else lost_text(self.task, self.loss)
        return f"{lost}{_CONSEQUENCES[self.then]}"


def lost_text(task: str, loss: Loss) -> str:
    """The loss of a task, as messages name it."""
    return f"{task} lost ({loss})"


@dataclass(frozen=True)
class Stalled(Fact):
    """The job made no new step until its deadline: a generation ended."""

    kind: ClassVar[str] = "stalled"
    loss: Loss

    def __str__(self) -> str:
        return str(self.loss)


@dataclass(frozen=True)
class Back(Fact):
    """A task that was lost alone runs again."""

    kind: ClassVar[str] = "restarted"
    news: ClassVar[bool] = False
    task: str
    seconds: float
    """How long it was away."""

    def __str__(self) -> str:
        return f"{self.task} runs again after {self.seconds:.1f} s"


@dataclass(frozen=True)
class Hung(Fact):
    """A child gave no sign of life."""

    kind: ClassVar[str] = "hung"
    where: str
    """The task that the others wait for, and where it is."""

    def __str__(self) -> str:
        return f"the job hangs: {self.where}"


@dataclass(frozen=True)
class Slow(Fact):
    """A task makes the others wait or, of ps-workers, is slower than they are."""

    kind: ClassVar[str] = "slow"
    task: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Checkpoint(Fact):
    """A checkpoint was completed."""

    kind: ClassVar[str] = "checkpoint"
    news: ClassVar[bool] = False
    number: int
    """Its step."""
    bytes: int | None = None
    seconds: float = 0.0
    """How long training waited for it."""

    def __str__(self) -> str:
        return f"checkpoint of step {self.number}"


@dataclass(frozen=True)
class Scored(Fact):
    """The evaluator scored a checkpoint."""

    kind: ClassVar[str] = "score"
    news: ClassVar[bool] = False
    task: str
    number: int
    """The step of the checkpoint."""
    figures: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        listed = " ".join(f"{name}={digits(value)}" for name, value in self.figures.items())
        return f"step {self.number}: {listed}"


@dataclass(frozen=True)
class Note(Fact):
    """Anything else that is worth a line, or a fact of a newer version."""

    text: str
    task: str | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Ended(Fact):
    """The job ended."""

    kind: ClassVar[str] = "ended"
    news: ClassVar[bool] = False
    code: int
    message: str = ""
    task: str | None = None
    """The task that the job ended for."""
    loss: Loss | None = None
    """Why it did, if a task was lost."""

    def __str__(self) -> str:
        return self.message or "the job is done"


KINDS: dict[str, type[Fact]] = {
    each.kind: each for each in (Began, Formed, Lost, Stalled, Back, Hung, Slow, Checkpoint, Scored, Ended)
}


@dataclass(frozen=True)
class Entry:
    """A fact with its time and place in the job's life: a line of the journal."""

    time: float
    """Seconds since the epoch."""
    fact: Fact
    generation: int = 0
    step: int = 0
    """The last step of the job."""
    kind: str = ""
    """The kind of the fact; of a note also a kind that only a newer version knows."""

    @property
    def text(self) -> str:
        return plain_text(str(self.fact))

    @property
    def task(self) -> str | None:
        return getattr(self.fact, "task", None)

    def document(self) -> dict[str, object]:
        """The JSON object of a line. `text` is for people, and for versions that do not know the kind."""
        known = {each.name: getattr(self.fact, each.name) for each in fields(self.fact)}
        if isinstance(loss := known.get("loss"), Loss):
            known["loss"] = _short(loss.sendable())  # that of the chief's own child has any text
        head = {"time": round(self.time, 3), "kind": self.kind, "generation": self.generation, "step": self.step}
        return {**head, **known, "text": self.text}


def _short(loss: Loss) -> dict[str, object]:
    """The fields that differ from their defaults."""
    return {
        each.name: getattr(loss, each.name)
        for each in fields(loss)
        if each.default is MISSING or getattr(loss, each.name) != each.default
    }


def entry(time: float, fact: Fact, generation: int = 0, step: int = 0) -> Entry:
    return Entry(time, fact, generation, step, fact.kind)


@cache
def _adapters() -> dict[str, TypeAdapter[Fact]]:
    return {kind: TypeAdapter(made) for kind, made in KINDS.items()}


def parse(line: Mapping[str, object]) -> Entry | None:
    """The entry of a line's JSON object; None if it has no time or text. What only a newer version knows is a note."""
    time, text, kind = line.get("time"), line.get("text"), line.get("kind")
    if not isinstance(time, (int, float)) or isinstance(time, bool) or not 0 <= time < LATEST_TIME:
        return None
    if not isinstance(text, str):
        return None
    fact: Fact = Note(text, task if isinstance(task := line.get("task"), str) else None)
    if isinstance(kind, str) and kind in KINDS:
        names = {each.name for each in fields(KINDS[kind])}
        known = json.dumps({name: line[name] for name in names if name in line})
        with contextlib.suppress(ValidationError):  # a cause that only a newer version knows
            fact = _adapters()[kind].validate_json(known)
    generation, step = (n if isinstance(n := line.get(name), int) else 0 for name in ("generation", "step"))
    return Entry(float(time), fact, generation, step, kind if isinstance(kind, str) else "")
