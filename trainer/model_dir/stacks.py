"""The stacks of all tasks of a job at one moment, as in result.json and /status."""

# No annotations from __future__: pydantic 2.5 looks for their names in the module of the adapter.

from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, NamedTuple

from pydantic import Field, TypeAdapter

from trainer.model_dir.files import json_object, typed

LONGEST_NAME = 300


class Frame(NamedTuple):
    """A call in a stack."""

    file: Annotated[str, Field(max_length=LONGEST_NAME)]
    """Relative to the folder of the job's code, or to that of the installed packages."""
    line: Annotated[int, Field(ge=0, lt=2**31)]
    function: Annotated[str, Field(max_length=LONGEST_NAME)]
    theirs: bool
    """Whether it is in the user's code, not in a library, in Python's own or in trainer."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}{'' if self.function.endswith('>') else '()'}"


@dataclass
class Group:
    """Tasks whose stacks are equal, so far as they matter."""

    tasks: list[str]
    state: str
    """What kept their processes from an answer, or empty: protocol/stacks.py."""
    doing: str
    """What they did, as far as events and counters showed: `in step 1203`."""
    threads: list[list[Frame]]
    """Of the first of these tasks: those in the user's code, and the main thread as the last one; the innermost call
    first."""


@dataclass
class Stacks:
    time: float
    """Seconds since the epoch."""
    text: str
    """Which task the others wait for, and where it is; in one line."""
    groups: list[Group] = field(default_factory=list)


@cache
def _adapter() -> TypeAdapter[Stacks]:
    return TypeAdapter(Stacks)


def parse(found: object) -> list[Stacks]:
    """Those in a document; none if it has others, as of another version."""
    try:
        return (
            [typed(_adapter(), each, 1) for each in found if isinstance(each, dict)] if isinstance(found, list) else []
        )
    except ValueError:
        return []


def read(body: str | bytes) -> Stacks:
    """A chief's answer to GET /stacks.

    Raises:
        ValueError: it is none; the reason is one line.
    """
    return typed(_adapter(), json_object(body), 1)
