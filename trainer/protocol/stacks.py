"""The stacks of a task's process, as a report has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from trainer.model_dir.stacks import LONGEST_NAME, Frame

STEP = "step"
WAITS_FOR_DATA = "the wait for the batch"
"""How a loop's word for what it is in begins: a step, or what comes before it."""
MOST_THREADS = 40
MOST_FRAMES = 60

Thread = Annotated[list[Frame], Field(max_length=MOST_FRAMES)]
"""Its calls, the innermost first."""
State = Literal["", "stopped", "no child", "no answer", "not asked"]
"""What keeps a process from an answer: a stop signal; that there is none; that it does not react, as in an
uninterruptible read; that it has not registered for it (stack_dump.py), as a program that never reports."""


STATES: dict[str, str] = {
    "stopped": "stopped by a signal (SIGSTOP); SIGCONT lets it go on",
    "no answer": "in a call of the kernel that no signal interrupts, as a read from a network disk",
    "no child": "no process runs",
    "not asked": "its process writes no stacks: a program does once it has imported trainer",
}


@dataclass
class TaskStacks:
    """The threads of a task's child at one moment."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    number: Annotated[int, Field(ge=0, lt=2**31)]
    """Of the chief's question."""
    state: State = ""
    doing: Annotated[str, Field(max_length=LONGEST_NAME)] = ""
    """What its loop does, as far as its counters show: `step 1203`."""
    threads: Annotated[list[Thread], Field(max_length=MOST_THREADS)] = field(default_factory=list)
    """Python's main thread is the last one."""
