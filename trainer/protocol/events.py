"""Events: messages from a child to its supervisor, as JSON lines on a separate pipe.

{"event": "step", "step": 500, "figures": {"loss": 0.25}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from types import NoneType, UnionType
from typing import TypeAlias, get_args, get_origin, get_type_hints

EVENT_BYTES = 1 << 26
"""Maximum length of an event, which is one line."""

Figures: TypeAlias = Mapping[str, object]
"""Values by name, computed by the user's code."""


@dataclass
class Alive:
    """A sign of life."""


@dataclass
class Doing:
    """What the loop does, as far as its counters show."""

    text: str


@dataclass
class Warm:
    """All imports are done: the child waits for its order to start."""


@dataclass
class Line:
    """A line for the task's output."""

    text: str


@dataclass
class Indexing:
    """The child indexes its files of records, before training begins."""

    done: int
    """Changes as long as it goes on."""


@dataclass
class Indexed:
    """The child has found all records that it trains on, and compares them with the chief's."""


@dataclass
class Start:
    """Training begins, or a server serves."""

    step: int | None = None
    steps: int | None = None
    """The last step of the whole job."""
    line: str | None = None
    """The start line."""


@dataclass
class Traced:
    """TensorFlow has traced the graph of a step."""


@dataclass
class Step:
    step: int | None = None
    workers: Mapping[str, Figures] | None = None
    """The coordinator's measurements of each ps-worker."""
    figures: Figures = field(default_factory=dict)
    steps_made: int | None = None
    """Steps of this child that the seconds below are of: all but those of its first call, which traces the graph."""
    seconds_input: float | None = None
    """Seconds for which these steps waited for their data."""
    seconds_compute: float | None = None
    """Seconds of these steps for all else: gradients, updates, and the parts that are not known."""
    seconds_exchange: float | None = None
    """Seconds for which the task had nothing to do but to exchange values with other tasks, and to wait for them."""
    seconds_wait: float | None = None
    """Seconds between these steps: checkpoints, validation, callbacks."""
    input_share: float | None = None
    """Share of the time of steps in which they waited for data, since the last log line."""


@dataclass
class Saved:
    """A checkpoint is complete."""

    step: int
    stalled: float
    """Seconds for which training has waited for checkpoints so far."""
    written: float | None = None
    """Seconds in which checkpoints were written so far, while training continued."""
    checkpoints: int | None = None
    """Number of checkpoints written so far."""


@dataclass
class EpochEnd:
    """The chief validates and calls callbacks at the end of an epoch, or reads the test data before the first step; or
    has done so."""

    over: bool


@dataclass
class Stopped:
    """The child ends on request, with a checkpoint of this step."""

    step: int | None = None


@dataclass
class Trained:
    """All steps are done."""


@dataclass
class Finishing:
    """The final evaluation and export run."""

    text: str = ""
    """What is done, and what is left to do."""


@dataclass
class Scored:
    """The evaluator has scored the checkpoint of this step."""

    step: int | None = None
    figures: Figures = field(default_factory=dict)


@dataclass
class PeerLost:
    """The child ends with an error that a lost peer may have caused; `code` and `message` are for the other case."""

    text: str
    code: int | None = None
    message: str | None = None


@dataclass
class Failed:
    """The child ends with an error of its own."""

    code: int
    message: str


@dataclass
class Done:
    """The child has finished."""

    step: int | None = None
    test: Figures | None = None
    examples_per_second: float | None = None
    skipped_batches: int | None = None
    """Batches that were not trained on with float16, because their gradients overflowed."""
    stopped_early: str | None = None
    """Why a callback has ended the training."""
    final_weights: str | None = None
    """The callbacks that have replaced the weights of the last step."""
    result: dict[str, object] | None = None
    """The return value of a workload of strategy graph."""
    exports: Figures | None = None
    """Whether each export, loaded again, is equal to the trained model."""
    init_from: str | None = None
    """What it began with."""
    best: Figures | None = None
    """Metric, value and step of the best checkpoint."""
    bad_records: int | None = None
    """Damaged records that were left out."""


Event: TypeAlias = (
    Alive
    | Doing
    | Warm
    | Line
    | Indexing
    | Indexed
    | Start
    | Traced
    | Step
    | Saved
    | EpochEnd
    | Stopped
    | Trained
    | Finishing
    | Scored
    | PeerLost
    | Failed
    | Done
)
_NAMES: dict[str, type[Event]] = {
    "alive": Alive,
    "doing": Doing,
    "warm": Warm,
    "line": Line,
    "indexing": Indexing,
    "indexed": Indexed,
    "start": Start,
    "traced": Traced,
    "step": Step,
    "checkpoint": Saved,
    "epoch_end": EpochEnd,
    "stopped": Stopped,
    "trained": Trained,
    "finishing": Finishing,
    "scored": Scored,
    "peer_lost": PeerLost,
    "error": Failed,
    "done": Done,
}
_NAME_OF = {kind: name for name, kind in _NAMES.items()}


def name_of(event: Event) -> str:
    return _NAME_OF[type(event)]


def write_event(event: Event) -> str:
    known = {each.name: value for each in fields(event) if (value := getattr(event, each.name)) is not None}
    return json.dumps({**known, "event": name_of(event)}) + "\n"


def read_event(line: bytes) -> Event | None:
    """The event in a line; None if it is not one, because the user's code may write to the pipe as well."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(name := event.pop("event", None), str):
        return None
    if (kind := _NAMES.get(name)) is None:
        return None
    types = _TYPES[kind]
    known = {name: event[name] for name in types if name in event}
    if not all(_is(value, types[name]) for name, value in known.items()) or not known.keys() >= _REQUIRED[kind]:
        return None
    if not all(isinstance(row, dict) for row in known.get("workers", {}).values()):
        return None
    return kind(**known)


def _type(hint: object) -> type:
    """The type of a value: int for `int | None`, dict for `dict[str, object]`."""
    named = next(each for each in get_args(hint) if each is not NoneType) if isinstance(hint, UnionType) else hint
    kind = get_origin(named) or named
    assert isinstance(kind, type)
    return kind


def _is(value: object, wanted: type) -> bool:
    if wanted in (int, float):
        numbers = int if wanted is int else (int, float)
        return isinstance(value, numbers) and not isinstance(value, bool) and 0 <= value < 2**63
    return isinstance(value, wanted)


_TYPES = {kind: {name: _type(hint) for name, hint in get_type_hints(kind).items()} for kind in _NAMES.values()}
_REQUIRED = {
    kind: {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}
    for kind in _NAMES.values()
}
