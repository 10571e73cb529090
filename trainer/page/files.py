"""The page of a job from the files in its model_dir: after its end, or of a version that served no page."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from trainer.debug import redaction
from trainer.debug.redaction import Redactor
from trainer.job import errors
from trainer.job.messages import command_line
from trainer.model_dir import checkpoint, history, layout, result, rotation
from trainer.model_dir import state as job_state
from trainer.model_dir.files import json_object, json_text, read_json
from trainer.model_dir.history import History, Mark
from trainer.model_dir.regular import document as content
from trainer.model_dir.regular import end, is_inside
from trainer.page import document, outcome
from trainer.page.document import View
from trainer.page.lines import Lines, LogQuery, shown, time_in
from trainer.page.marks import marks_of
from trainer.page.outcome import Job as EndedJob
from trainer.protocol.child import number
from trainer.protocol.status import End, upgraded

LOG_BYTES = 8 << 20
"""Bytes of all logs together that are shown: the end of each."""
CURVE_BYTES = 64 << 20
"""Bytes of a learning curve that are read: its end."""
OUTPUT = "output"
"""Prefix of the names of the files in which `trainer local` keeps what tasks print (targets/local/output.py)."""
_LINE = re.compile(r"(\S+) (\S+) +\| (.*)")


class FilesPage:
    """Source of the page of a model_dir."""

    def __init__(self, model_dir: str) -> None:
        self._model_dir = model_dir
        self._lines: Lines | None = None
        self._redactor = Redactor()
        self._one_at_a_time = asyncio.Lock()

    async def state(self) -> str:
        return await asyncio.to_thread(text, self._model_dir)

    async def logs(self, query: LogQuery) -> str:
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._find, query)

    def _find(self, query: LogQuery) -> str:
        if self._lines is None:
            self._lines, self._redactor = _lines(self._model_dir), _redactor(self._model_dir)
        return json_text(self._lines.find(query, self._redactor.text))

    def subscribe(self) -> None:
        return None

    def unsubscribe(self, queue: asyncio.Queue[str]) -> None:
        raise NotImplementedError


def exists(model_dir: str) -> bool:
    """Whether there is something to show."""
    places = (layout.history, layout.journal, layout.result, layout.state, layout.metrics)
    return any(place(model_dir).is_file() for place in places)


def text(model_dir: str) -> str:
    """The document of the page."""
    document = _kept(model_dir)
    if document is None:
        return _from_results(model_dir)
    end = _end(model_dir)
    status, points = upgraded(_object(document["status"])), _object(document["history"])
    if happened := marks_of(model_dir):
        older = marks if isinstance(marks := points.get("marks"), list) else []  # of version 0.2, which had no journal
        points = {**points, "marks": [*older, *(mark.document() for mark in happened)]}
    if end:  # the chief may have been killed after it had saved the history last
        status = {**status, "phase": errors.outcome(end.code), "end": asdict(end)}
    own = {"version": history.VERSION, "live": False, "eta": None, "status": status, "history": points}
    if end:
        own["outcome"] = _outcome(model_dir, status, end)
    return json_text({**document, **own})


def _kept(model_dir: str) -> dict[str, object] | None:
    """The document that the chief has kept; None if there is none that this version can show."""
    try:
        document = json_object(content(layout.history(model_dir)))
    except OSError:
        return None
    version = document.get("version")
    known = isinstance(version, int) and version <= history.VERSION
    return (
        document if known and all(isinstance(document.get(key), dict) for key in ("status", "job", "history")) else None
    )


def _end(model_dir: str) -> End | None:
    """How the last run ended, as far as that is known."""
    if layout.state(model_dir).exists():  # a run that began after the result
        end = job_state.load(model_dir, 0.0).end
        return End(end.code, end.message) if end else None
    return End(0, "") if result.finished(model_dir) else None


# Of jobs without history.json: with `page: none`, of version 0.2.0, or of a chief that was killed early. -----


def _from_results(model_dir: str) -> str:
    """As much as result.json, the learning curves and the checkpoints tell."""
    found, end = read_json(layout.result(model_dir)), _end(model_dir)
    made = History()
    for record in _records(layout.metrics(model_dir)):
        figures = {name: value for name, value in record.items() if name not in ("step", "time", "loss", _RATE)}
        point: dict[history.Path, float | None] = {("metrics", name): value for name, value in figures.items()}
        point |= {(name,): record.get(name) for name in ("step", "loss", _RATE)}
        made.job.add(record["time"], point)
    for mark in marks_of(model_dir) or sorted(_marks(model_dir, found), key=lambda each: each.time):
        made.mark(mark)
    times = made.job.time
    job = {
        "spec": Redactor().document(_object(found.get("spec"))),
        "tf_config": {},
        "started": times[0] if times else None,
    }
    status = _status(found, end)
    how = _outcome(model_dir, status, end) if end else None
    return document.text(View(False, status, job, outcome=how, now=times[-1] if times else 0.0), made)


def _outcome(model_dir: str, status: Mapping[str, object], end: End) -> dict[str, object]:
    name, chief = (str(status.get(key) or default) for key, default in (("job", model_dir), ("task", "chief:0")))
    job = EndedJob(name, chief, model_dir, end, job_state.load(model_dir, 0.0).hangs)
    return outcome.outcome(job, command_line(["trainer", "debug", model_dir], []), _redactor(model_dir).text)


_RATE = "examples_per_second"


def _status(found: Mapping[str, object], end: End | None) -> dict[str, object]:
    names = ("job", "strategy", "warnings", "seconds", "events", "hangs")
    known = {name: found[name] for name in names if name in found}
    figures = {name: value for name, value in found.items() if name == _RATE or name.startswith("test_")}
    tasks = {name: {"state": "done", "line": line} for name, line in _object(found.get("tasks")).items()}
    phase = None if end is None else errors.outcome(end.code)
    steps, generations = found.get("steps"), found.get("generations")
    own = {"step": steps, "steps": steps, "generation": generations, "phase": phase, "tasks": tasks}
    own["end"] = asdict(end) if end else None
    return {**known, **own, "figures": figures}


def _marks(model_dir: str, found: Mapping[str, object]) -> Iterator[Mark]:
    events = found.get("events")
    for event in events if isinstance(events, list) else []:
        match event:
            case {"time": when, "text": str(text)} if (time := number(when)) is not None:
                yield Mark(time, str(event.get("kind", "")), text)
    for step in checkpoint.steps(model_dir):
        if written := checkpoint.written(model_dir, step):
            yield Mark(written[0], "checkpoint", f"checkpoint of step {step}", step=step, bytes=written[1])
    for record in _records(layout.evaluation(model_dir)):
        step = int(record["step"])
        scores = " ".join(f"{name}={value:.4g}" for name, value in record.items() if name not in ("step", "time"))
        yield Mark(record["time"], "score", f"step {step}: {scores}", step=step)


def _records(path: Path) -> Iterator[dict[str, float]]:
    """The numbers of a learning curve, of each of at most JOB_POINTS lines."""
    try:
        lines = _whole_lines(end(path, CURVE_BYTES))
    except OSError:
        return
    every = -(-len(lines) // history.JOB_POINTS) or 1
    for line in lines[::every]:
        record = json_object(line)
        numbers = {name: found for name, value in record.items() if (found := number(value)) is not None}
        if "step" in numbers and "time" in numbers:
            yield numbers


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


# Logs. ------------------------------------------------------------------------------------------------


def _lines(model_dir: str) -> Lines:
    """The ends of all logs, merged by time. What a program writes to stderr is in the log of its task and, under
    `trainer local`, in that of all tasks too: it is taken from there, where it has a time."""
    found, printed = Lines(4 * LOG_BYTES), Counter[tuple[str, str]]()
    folder = layout.logs(model_dir)
    logs = [path for path in folder.glob("*.log") if path.is_file()] if is_inside(folder, model_dir) else []
    for path in sorted(logs, key=lambda each: (not each.stem.startswith(OUTPUT), each)):
        with contextlib.suppress(OSError):
            body, when = end(path, LOG_BYTES // len(logs)), path.stat().st_mtime
            texts = [shown(line) for line in _whole_lines(body)]
            if path.stem.startswith(OUTPUT):
                for task, line in _printed(texts):
                    found.add(task, [line])
                    printed[task, line[1]] += 1
                continue
            task_type, _, index = rotation.name(path).rpartition("-")
            task = f"{task_type}:{index}"
            first = next((time for each in texts if (time := time_in(each))), when)
            timed = [*_timed(texts, first)]
            found.add(task, (line for line in timed if not _taken(printed, task, line[1])))
    return found


def _taken(printed: Counter[tuple[str, str]], task: str, text: str) -> bool:
    """Whether a line was printed too; then it is removed from `printed`, for each line counts once."""
    if not printed[task, text]:
        return False
    printed[task, text] -= 1
    return True


def _printed(texts: Iterable[str]) -> Iterator[tuple[str, tuple[float, str]]]:
    """Lines of a file of `trainer local`, which has what all tasks have printed: `TIME TASK | TEXT`."""
    for each in texts:
        if found := _LINE.fullmatch(each):
            with contextlib.suppress(ValueError):
                yield found[2], (datetime.fromisoformat(found[1].replace("Z", "+00:00")).timestamp(), found[3])


def _timed(texts: list[str], when: float) -> Iterator[tuple[float, str]]:
    """Each line with its time, or that of the line before."""
    for each in texts:
        when = time_in(each) or when
        yield when, each


def _redactor(model_dir: str) -> Redactor:
    """Knows the values of the job's secrets that are set here too, and those in its spec, if it has a result."""
    spec = _object(read_json(layout.result(model_dir)).get("spec"))
    kept = _object(_object((_kept(model_dir) or {}).get("job")).get("spec"))
    names = {**_object(kept.get("secrets")), **_object(spec.get("secrets"))}
    return redaction.of_job(spec, names)


def _whole_lines(body: bytes) -> list[bytes]:
    return body.removesuffix(b"\n").split(b"\n") if body else []
