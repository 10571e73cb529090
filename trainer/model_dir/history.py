"""history.json: how a job went, as its page shows it: figures over time of the job and of its tasks.
What happened is in the journal (journal.py).

The file is the document of the page (trainer/page/document.py), so that it opens without its chief. Its size and the
memory for it have limits, however long the job lasts and however many tasks it has.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Literal, TypeAlias

from pydantic import TypeAdapter

from trainer.model_dir import layout
from trainer.model_dir.files import json_object, json_text, typed, write_pieces
from trainer.model_dir.regular import document as content

VERSION = 2
"""Version of the document. It increases when a field is renamed, removed or changes its meaning, not when one is
added."""
JOB_POINTS = 600
MOST_TASK_POINTS, FEWEST_TASK_POINTS = 30_000, 30
"""Points of all tasks together, and of one of very many."""
TASKS_A_SECOND = 100
"""Which get a point; of more tasks, points are further apart."""
MOST_METRICS = 20
MARKS_OF_A_KIND = 200

Path: TypeAlias = "tuple[str, ...]"
"""Of a column, by the keys that lead to it in JSON: ("metrics", "accuracy")."""

_TIME: Path = ("time",)
_WHOLE = ("step",)
"""Columns of whole numbers, which have more digits than others need."""


class Series:
    """Numbers over time, in columns. When it is full, every second point goes, and from then on points are added half
    as often."""

    def __init__(self, limit: int, interval: float) -> None:
        """
        Args:
            limit: the most points, at least 2.
            interval: seconds from one point to the next, until it is full.
        """
        self.limit, self.interval = limit, interval
        self.time = array("d")
        self.columns: dict[Path, array[float]] = {}

    def due(self, now: float) -> bool:
        """Whether it is time for the next point. A clock that was set back must not stop the series."""
        return not self.time or not 0 <= now - self.time[-1] < self.interval

    def add(self, now: float, values: Mapping[Path, float | None]) -> None:
        """Adds a point; columns that it lacks have none there."""
        while len(self.time) >= self.limit:
            self.interval *= 2
            self.time = self.time[::2]
            self.columns = {path: column[::2] for path, column in self.columns.items()}
        for path in values.keys() - self.columns.keys():
            if values[path] is not None:
                self.columns[path] = array(_code(path), [math.nan]) * len(self.time)
        self.time.append(now)
        for path, column in self.columns.items():
            value = values.get(path)
            column.append(math.nan if value is None else value)

    def copy(self) -> Series:
        """For another thread."""
        made = Series(self.limit, self.interval)
        made.time, made.columns = self.time[:], {path: column[:] for path, column in self.columns.items()}
        return made

    def text(self) -> str:
        """The columns with their times, as JSON; null for what is not known."""
        return _text(_numbers(self.time, "%.1f"), self.columns)


def _text(times: str, columns: Mapping[Path, array[float]]) -> str:
    """As Series.text.

    Args:
        times: as JSON.
    """
    rows = {path: _numbers(column, "%.0f" if path[-1] in _WHOLE else "%.6g") for path, column in columns.items()}
    return _nested({_TIME: times, **rows})


def _code(path: Path) -> str:
    return "d" if path[-1] in _WHOLE else "f"


def _numbers(column: array[float], form: str) -> str:
    """A JSON list. Quicker than json.dumps, which writes all digits of a double: a thousand tasks have a million."""
    return f"[{','.join([form % value if math.isfinite(value) else 'null' for value in column])}]"


def _nested(rows: Mapping[Path, str]) -> str:
    """A JSON object of texts that are JSON, by their paths."""
    parts: dict[str, dict[Path, str]] = {}
    for path, text in rows.items():
        parts.setdefault(path[0], {})[path[1:]] = text
    inner = (f"{json.dumps(name)}:{own[()] if () in own else _nested(own)}" for name, own in parts.items())
    return f"{{{','.join(inner)}}}"


@dataclass
class Mark:
    """Something that happened to the job."""

    time: float
    """Seconds since the epoch."""
    kind: str
    """One of result.Kind, checkpoint, score, stopped or ended."""
    text: str
    task: str | None = None
    generation: int | None = None
    step: int | None = None
    bytes: int | None = None
    """Of a checkpoint."""
    seconds: float | None = None
    """For which training paused for a checkpoint, or a task was away."""

    def document(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass
class Counters:
    """What the next chief of the job needs besides the series."""

    intervals: dict[Literal["job", "tasks"], float]
    """Seconds from point to point."""


@dataclass
class History:
    """All of it, in memory."""

    job: Series = field(default_factory=lambda: Series(JOB_POINTS, 1.0))
    tasks: Series = field(default_factory=lambda: Series(JOB_POINTS, 1.0))
    marks: list[Mark] = field(default_factory=list)
    """What happened. In the file only what version 0.2 wrote: it had no journal."""

    def mark(self, mark: Mark) -> None:
        """Adds a mark. Of very many of a kind, every second one goes."""
        self.marks.append(mark)
        alike = [each for each in self.marks if each.kind == mark.kind]
        if len(alike) > MARKS_OF_A_KIND:
            gone = set(map(id, alike[1:-1:2]))
            self.marks = [each for each in self.marks if id(each) not in gone]

    def fit(self, tasks: int) -> None:
        """Sets how many points each of so many tasks has."""
        self.tasks.limit = max(FEWEST_TASK_POINTS, min(JOB_POINTS, MOST_TASK_POINTS // max(1, tasks)))
        self.tasks.interval = max(self.tasks.interval, tasks / TASKS_A_SECOND)

    def copy(self) -> History:
        """For another thread."""
        return replace(self, job=self.job.copy(), tasks=self.tasks.copy(), marks=self.marks[:])

    def text(self) -> str:
        """As JSON, for `history` in the document."""
        return "".join(self.pieces())

    def pieces(self) -> Iterator[str]:
        """The same, task by task: of many it is megabytes."""
        tasks: dict[str, dict[Path, array[float]]] = {}
        for (name, *path), column in self.tasks.columns.items():
            tasks.setdefault(name, {})[tuple(path)] = column
        yield f'{{"job":{self.job.text()},"tasks":{{'
        times, comma = _numbers(self.tasks.time, "%.1f"), ""
        for name, columns in sorted(tasks.items()):
            yield f"{comma}{json.dumps(name)}:{_text(times, columns)}"
            comma = ","
        yield f'}},"marks":{json_text([mark.document() for mark in self.marks])}}}'

    def counters(self) -> Counters:
        return Counters({"job": self.job.interval, "tasks": self.tasks.interval})


def save(model_dir: str, pieces: Iterable[str]) -> None:
    """Writes the document of a page, which consists of these pieces.

    Raises:
        UserError: the disk is full or not writable.
    """
    write_pieces(layout.history(model_dir), pieces)


def thinned(marks: Iterable[Mark]) -> list[Mark]:
    """Marks in order of time, of each kind at most MARKS_OF_A_KIND: the first, the last, and some of those between."""
    kinds: dict[str, list[Mark]] = {}
    for mark in marks:
        kinds.setdefault(mark.kind, []).append(mark)
    few = [mark for alike in kinds.values() for mark in [*alike[: -1 : _every(alike)], alike[-1]]]
    return sorted(few, key=lambda mark: mark.time)


def _every(alike: list[Mark]) -> int:
    return max(1, -(-(len(alike) - 1) // (MARKS_OF_A_KIND - 1)))


def load(model_dir: str) -> History | None:
    """The history of a job that is to be continued; None if it has none. Its curves have a gap at the end.

    Raises:
        ValueError: it cannot be read; the reason is one line.
    """
    try:
        body = content(layout.history(model_dir))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    kept = read(json_object(body))
    for series in (kept.job, kept.tasks):
        if series.time:
            series.add(series.time[-1], {})
    return kept


def read(document: Mapping[str, object]) -> History:
    """The history in a document of the page.

    Raises:
        ValueError: it is none; the reason is one line.
    """
    saved = typed(_adapter(), document, VERSION)
    found, counters = saved.history, saved.counters
    history = History(marks=found.marks)
    history.job = _series(JOB_POINTS, counters.intervals["job"], dict(_flat(found.job)))
    times = next((row["time"] for row in found.tasks.values()), [])
    rows = {(name, *path): column for name, row in found.tasks.items() for path, column in _flat(row)}
    columns = {path: column for path, column in rows.items() if path[1:] != _TIME}
    history.tasks = _series(JOB_POINTS, counters.intervals["tasks"], {_TIME: _column(times), **columns})
    return history


_Column: TypeAlias = "list[float | None]"
_Columns: TypeAlias = "dict[str, list[float | None] | dict[str, list[float | None]]]"


@dataclass
class _Lists:
    job: dict[str, list[float | None] | dict[str, list[float | None]]]
    tasks: dict[str, dict[str, list[float | None] | dict[str, list[float | None]]]]
    marks: list[Mark] = field(default_factory=list)
    """Only in a file that version 0.2 wrote."""


@dataclass
class _Saved:
    history: _Lists
    counters: Counters


@cache
def _adapter() -> TypeAdapter[_Saved]:
    return TypeAdapter(_Saved)


def _flat(row: _Columns) -> Iterator[tuple[Path, _Column]]:
    for name, value in row.items():
        if isinstance(value, list):
            yield (name,), value
        else:
            yield from (((name, inner), column) for inner, column in value.items())


def _column(value: _Column | dict[str, _Column]) -> _Column:
    return value if isinstance(value, list) else []


def _series(limit: int, interval: float, columns: dict[Path, _Column]) -> Series:
    made, times = Series(limit, interval), columns.pop(_TIME, [])
    if any(len(column) != len(times) for column in columns.values()):
        raise ValueError("the columns differ in length")
    made.time = array("d", map(_float, times))
    made.columns = {path: array(_code(path), map(_float, column)) for path, column in columns.items()}
    return made


def _float(value: float | None) -> float:
    return math.nan if value is None else value
