"""Reports of supervisors to their chief and its replies, converted to and from bytes.

Received messages are validated here: types, ranges, lengths, known exit codes.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from trainer.job.errors import Exit
from trainer.model_dir.files import first_mistake
from trainer.protocol.stacks import TaskStacks

LONGEST_BODY = 1 << 20
"""Maximum bytes of a request or an answer on the control port."""
LONGEST_TEXT = 8000
_LATEST = 1e11
"""Seconds since the epoch."""
MOST_LINES = 2000
NOBODY_LOOKS = -1
_MOST_FIGURES = 500
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]+")
"""Unpaired surrogates occur in file names that are not UTF-8; other programs cannot read them in JSON."""
_T = TypeVar("_T")


def _known(code: int) -> int:
    if code not in list(Exit):
        raise ValueError("is no exit code of trainer")
    return code


def _not_ok(code: int) -> int:
    if code == Exit.OK:
        raise ValueError("0 is no failure")
    return code


def _figure(value: object) -> object:
    if isinstance(value, str):
        fits = len(value) <= LONGEST_TEXT and not _CONTROL.search(value)
    elif isinstance(value, int):
        fits = abs(value) < 2**63
    else:
        fits = value is None or (isinstance(value, float) and math.isfinite(value))
    if not fits:
        raise ValueError("must be a finite number, a text, true, false or null")
    return value


Phase = Literal["forming", "running", "done", "failed"]
Number = Annotated[int, Field(ge=0, lt=2**31)]
Step = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""As far as trainer.report takes it."""
Line = Annotated[int, Field(ge=0, lt=2**53)]
Time = Annotated[float, Field(ge=0, lt=_LATEST)]
Amount = Annotated[float, Field(ge=0, lt=2**63)]
Word = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=200)]
Text = Annotated[str, Field(pattern=r"^[^\x00-\x09\x0b-\x1f\x7f]*$", max_length=LONGEST_TEXT)]
Code = Annotated[int, AfterValidator(_known)]
Figures = Annotated[dict[Word, Annotated[object, AfterValidator(_figure)]], Field(max_length=_MOST_FIGURES)]
_STRICT = ConfigDict(strict=True, extra="forbid")


@dataclass
class Used:
    """What a task uses, as far as its supervisor knows."""

    __pydantic_config__ = _STRICT

    cpu: Amount | None = None
    """Cores."""
    memory: Amount | None = None
    """Bytes."""
    gpu: Amount | None = None
    """Mean utilization of its GPUs, 0 to 1."""
    gpu_memory: Amount | None = None
    """Bytes, of all its GPUs."""
    received: Amount | None = None
    sent: Amount | None = None
    """Bytes a second, by its container's network."""


@dataclass
class Report:
    """A supervisor's report to its chief."""

    __pydantic_config__ = _STRICT

    task: Word
    incarnation: Word
    """Random per process: a new one means that the supervisor was restarted."""
    cluster: Word
    spec: Word
    workload: Word
    """Digests of TF_CONFIG's cluster, the job spec and the workload file."""
    versions: Annotated[dict[Word, Word], Field(max_length=20)]
    started: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """When the process started, in seconds since the epoch."""
    number: Number = 0
    """Increases with each report of a process: late or repeated reports have no effect."""
    generation: Number = 0
    """Generation of the running child; 0 if none runs."""
    ended_early: Number = 0
    """Generation whose child ended early."""
    finished: Number = 0
    """Generation whose program has exited with 0."""
    reason: Text = ""
    failure: tuple[Annotated[Code, AfterValidator(_not_ok)], Text] | None = None
    blames_peer: bool = False
    """Whether the child ended with an error that a lost peer may have caused; `failure` is the error otherwise."""
    leaving: bool = False
    restarts: Number = 0
    standby: bool = False
    hangs: bool = False
    """Whether its child gives no sign of life, and will be killed."""
    stacks: TaskStacks | None = None
    """The answer to the chief's last question."""
    status: Figures = field(default_factory=dict)
    """Status of the running child. The chief's own holds more than figures, and is never sent."""
    used: Used | None = None
    lines: Annotated[list[tuple[Time, Text]], Field(max_length=MOST_LINES)] = field(default_factory=list)
    """What the task has written, with times in seconds since the epoch, while a page shows its logs."""
    first_line: Line = 0
    """The number of the first of these lines, which have numbers from 1 on."""


@dataclass
class Reply:
    """The chief's reply."""

    __pydantic_config__ = _STRICT

    phase: Phase
    generation: Number
    resume_step: Step
    version: Number
    """Increases with every change; a report with the version that it knows is answered once there is a newer one."""
    code: Code = 0
    message: str = ""
    step: Step = 0
    refused: bool = False
    """Whether only this process must end; the job continues."""
    stacks: Number = 0
    """Number of the chief's question for the stacks of all tasks, or 0."""
    term: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Number of the chief's lease: the replies of a chief that has lost it have a lower one."""
    lines_after: Annotated[int, Field(ge=NOBODY_LOOKS, lt=2**53)] = NOBODY_LOOKS
    """The task's last line that the chief has; NOBODY_LOOKS if it wants none."""


@dataclass
class Asked:
    """The body of a POST to /report."""

    __pydantic_config__ = _STRICT

    report: Report
    known: Number
    """The version of the last reply."""


@dataclass
class Identity:
    """The answer to /healthz."""

    job: Word
    task: Word
    incarnation: Word


_ASKED, _REPLY, _IDENTITY = TypeAdapter(Asked), TypeAdapter(Reply), TypeAdapter(Identity)


def failure_code(code: object) -> Exit:
    """The exit code of a failure, never 0: what a child reports is not validated before."""
    return next((each for each in Exit if each == code and each is not Exit.OK), Exit.BUG)


def question(report: Report, known: int) -> bytes:
    """A report as bytes. Values from the user's code are cut to the allowed length."""
    body = asdict(report)
    body["reason"] = plain_text(report.reason)
    if report.failure is not None:
        body["failure"] = [int(failure_code(report.failure[0])), plain_text(report.failure[1])]
    figures = {name: value for name, value in body["status"].items() if _may_be_sent(name, value)}
    body["status"] = dict(list(figures.items())[:_MOST_FIGURES])
    # A line may have any text, and begin with any time: the task must not be lost for it.
    body["lines"] = [(when if 0 <= when < _LATEST else 0.0, plain_text(text)) for when, text in report.lines]
    return json.dumps({"report": body, "known": known}).encode()


def read_question(body: bytes) -> Asked:
    """
    Raises:
        ValueError: it is none; with the reason in one line.
    """
    return _read(_ASKED, body)


def answer(reply: Reply) -> bytes:
    return json.dumps(vars(reply)).encode()  # asdict takes ten times as long


def read_answer(body: bytes) -> Reply:
    """
    Raises:
        ValueError: it is none; with the reason in one line.
    """
    reply = _read(_REPLY, body)
    if (reply.phase == "failed") != (reply.code != Exit.OK):
        raise ValueError(f"phase: {reply.phase} with exit code {reply.code}")
    return reply


def read_identity(body: bytes) -> Identity:
    """
    Raises:
        ValueError: it is none; with the reason in one line.
    """
    return _read(_IDENTITY, body)


def _read(adapter: TypeAdapter[_T], body: bytes) -> _T:
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        raise ValueError(plain_text(first_mistake(error))[:200]) from None


def _may_be_sent(name: str, value: object) -> bool:
    try:
        _figure(value)
    except ValueError:
        return False
    return 0 < len(name) <= 200 and not _CONTROL.search(name) and "\n" not in name


def plain_text(text: str) -> str:
    """A text of any length and content as reports and replies may have it."""
    text = _CONTROL.sub(" ", text)
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 3]}..."
