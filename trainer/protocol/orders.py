"""Orders: messages from a supervisor to its child, as JSON lines on the child's stdin.

{"go": {"generation": 1, "resume_step": 500, "ring": {"following": 4222, "key": "c0ffee"}}}
{"stop": true}
{"final": 1000, "score": true}
{"silent": ["worker:1"]}
{"where": true}
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TypeAlias


@dataclass
class Neighbours:
    """The tasks beside this one in the ring of a generation."""

    following: int
    """The port of the next task."""
    key: str
    """By which they know each other, in hexadecimal digits."""


@dataclass
class Go:
    """Join this generation, and train from this step."""

    generation: int
    resume_step: int
    ring: Neighbours | None = None
    """Of a job whose tasks form one."""


@dataclass
class Stop:
    """Save a checkpoint and end."""


@dataclass
class Final:
    """For an evaluator: the checkpoint of this step is the last one."""

    step: int
    score: bool = True
    """False if it is only to be exported, because an attempt to score it ended the whole process."""


@dataclass
class Silent:
    """These tasks no longer report; replaces the previous order of this kind."""

    tasks: frozenset[str]


@dataclass
class Where:
    """Report what the loop does."""


Order: TypeAlias = Go | Stop | Final | Silent | Where


def write_order(order: Order) -> bytes:
    match order:
        case Go():
            body: dict[str, object] = {"go": asdict(order)}
        case Stop():
            body = {"stop": True}
        case Final(step, score):
            body = {"final": step, "score": score}
        case Silent(tasks):
            body = {"silent": sorted(tasks)}
        case Where():
            body = {"where": True}
    return (json.dumps(body) + "\n").encode()


def _neighbours(value: object) -> Neighbours | None:
    match value:
        case {"following": int(port), "key": str(key)}:
            return Neighbours(port, key)
    return None


def read_order(line: str) -> Order | None:
    """The order in a line; None if it is not one."""
    try:
        order = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match order:
        case {"stop": _}:
            return Stop()
        case {"where": _}:
            return Where()
        case {"silent": [*tasks]} if all(isinstance(name, str) for name in tasks):
            return Silent(frozenset(tasks))
        case {"final": int(step), **others}:
            return Final(step, others.get("score") is not False)
        case {"go": {"generation": int(generation), "resume_step": int(step), **others}}:
            return Go(generation, step, _neighbours(others.get("ring")))
    return None
