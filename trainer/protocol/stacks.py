"""The stacks of a task's process, as a report has them."""

# No annotations from __future__: pydantic 2.5 looks for their names in the module of the adapter.

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from trainer.model_dir.stacks import LONGEST_NAME, Frame

IN_STEP, IN_EXCHANGE = "in step", "in the all-reduce of step"
WAITS = "waiting"
WAITS_FOR_DATA = f"{WAITS} for the batch of step"
"""How what a loop does begins; the number of the step follows."""
MOST_THREADS = 40
MOST_FRAMES = 60

Thread = Annotated[list[Frame], Field(max_length=MOST_FRAMES)]
"""Its calls, the innermost first."""
State = Literal["", "stopped", "in the kernel", "no child", "no answer", "not asked"]
"""What keeps a process from an answer: a stop signal; a call of the kernel that no signal interrupts; that there is no
process; that it has not answered in time; that it has not registered for it (stack_dump.py), as a program that never
reports."""


STATES: dict[str, str] = {
    "stopped": "stopped by a signal (SIGSTOP); SIGCONT continues it",
    "in the kernel": "in a call of the kernel that no signal interrupts, as a read from a network disk",
    "no child": "no process runs",
    "no answer": "its process has not answered in time",
    "not asked": "its process writes no stacks: a program does once it has imported trainer",
}


@dataclass
class TaskStacks:
    """The threads of a task's child at one moment."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    number: Annotated[int, Field(ge=0, lt=2**31)]
    """The number of the chief's question."""
    state: State = ""
    doing: Annotated[str, Field(max_length=LONGEST_NAME)] = ""
    """What it does, as far as its events and counters show: `in step 1203`."""
    threads: Annotated[list[Thread], Field(max_length=MOST_THREADS)] = field(default_factory=list)
    """Python's main thread is the last one."""
