"""Reports of supervisors to their chief and its replies, converted to and from bytes.

Received messages are validated here: types, ranges, lengths, known exit codes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Annotated, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from trainer import __version__
from trainer.job.errors import Exit
from trainer.model_dir.files import first_mistake, json_object
from trainer.protocol.child import ChildStatus
from trainer.protocol.facts import Loss
from trainer.protocol.stacks import TaskStacks
from trainer.protocol.types import (
    LATEST_TIME,
    STRICT,
    Amount,
    Code,
    Line,
    Number,
    Phase,
    Step,
    Text,
    Time,
    Word,
    plain_text,
)

LONGEST_BODY = 1 << 20
"""Maximum bytes of a request or an answer on the control port."""
LONGEST_IDENTITY = 1 << 12
"""Maximum bytes of an answer to /healthz."""
SHORT_BODY = 1 << 14
"""Of a longer report the parts are counted before they are checked: pydantic collects an error for each of them, which
takes it seconds and hundreds of megabytes for a body of 1 MiB."""
MOST_LINES = 2000
NOBODY_LOOKS = -1
_MOST_PARTS = 16_000
"""The lines and stacks of a report have most of them."""
_T = TypeVar("_T")


@dataclass
class Used:
    """What a task uses, as far as its supervisor knows."""

    __pydantic_config__ = STRICT

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

    __pydantic_config__ = STRICT

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
    loss: Loss | None = None
    """Why the child has ended, or the task cannot go on; None while it runs."""
    leaving: bool = False
    restarts: Number = 0
    restarted_for: Loss | None = None
    """The loss after which the child was last restarted alone."""
    standby: bool = False
    gradients: Number = 0
    """The port at which its child listens for gradients; 0 of a task without a ring."""
    hangs: bool = False
    """Whether its child gives no sign of life, and will be killed."""
    stacks: TaskStacks | None = None
    """The answer to the chief's last question."""
    status: ChildStatus = field(default_factory=ChildStatus)
    """Status of the running child."""
    used: Used | None = None
    lines: Annotated[list[tuple[Time, Text]], Field(max_length=MOST_LINES)] = field(default_factory=list)
    """What the task has written, with times in seconds since the epoch, while a page shows its logs."""
    first_line: Line = 0
    """The number of the first of these lines, which have numbers from 1 on."""


@dataclass
class Reply:
    """The chief's reply."""

    __pydantic_config__ = STRICT

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
    following: Number = 0
    """The port for gradients of the task that follows this one in the ring, or 0."""
    lines_after: Annotated[int, Field(ge=NOBODY_LOOKS, lt=2**53)] = NOBODY_LOOKS
    """The task's last line that the chief has; NOBODY_LOOKS if it wants none."""


@dataclass
class Asked:
    """The body of a POST to /report."""

    __pydantic_config__ = STRICT

    report: Report
    known: Number
    """The version of the last reply."""


@dataclass
class Identity:
    """The answer to /healthz."""

    job: Word
    task: Word
    incarnation: Word


_COMPARED = ("task", "incarnation", "cluster", "spec", "workload", "versions", "number")
"""Fields of a report that each version has: the chief compares them with its own."""
_ASKED, _REPLY, _IDENTITY = TypeAdapter(Asked), TypeAdapter(Reply), TypeAdapter(Identity)


def question(report: Report, known: int) -> bytes:
    """A report as bytes. Values from the user's code are cut to the allowed length."""
    body = asdict(report)
    for name in ("loss", "restarted_for"):
        if isinstance(loss := getattr(report, name), Loss):
            body[name] = asdict(loss.sendable())
    body["status"] = report.status.sendable()
    # A line may have any text, and begin with any time: the task must not be lost for it.
    body["lines"] = [(when if 0 <= when < LATEST_TIME else 0.0, plain_text(text)) for when, text in report.lines]
    return json.dumps({"report": body, "known": known}).encode()


def read_question(body: bytes) -> Asked:
    """A report. Of one from another version of trainer only what the chief compares: it names the two versions.

    Raises:
        ValueError: it is none; with the reason in one line.
    """
    if len(body) > SHORT_BODY:
        _require_few_parts(body)
    try:
        return _read(_ASKED, body)
    except ValueError:
        if (asked := _of_another_version(body)) is None:
            raise
        return asked


def _require_few_parts(body: bytes) -> None:
    """
    Raises:
        ValueError: it has more than a report may have.
    """
    parts, left = 0, list[object]([json_object(body)])
    while left:
        each = left.pop()
        values = list(each.values()) if isinstance(each, dict) else each if isinstance(each, list) else []
        parts += len(values)
        if parts > _MOST_PARTS:
            raise ValueError(f"has more than {_MOST_PARTS} parts")
        left += values


def _of_another_version(body: bytes) -> Asked | None:
    asked = json_object(body)
    report = asked.get("report")
    if not isinstance(report, dict):
        return None
    compared = {name: report.get(name) for name in _COMPARED}
    try:
        known = _read(_ASKED, json.dumps({"report": compared, "known": asked.get("known")}).encode())
    except ValueError:
        return None
    return known if known.report.versions.get("trainer", __version__) != __version__ else None


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
        return adapter.validate_json(body, strict=True)
    except ValidationError as error:
        raise ValueError(plain_text(first_mistake(error))[:200]) from None
