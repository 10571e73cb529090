"""result.json: what a job that succeeded leaves, and how a later start recognises it as its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from pydantic import TypeAdapter

from trainer.job.errors import UserError
from trainer.job.names import TaskType
from trainer.job.spec import JobSpec
from trainer.model_dir import compatibility, layout
from trainer.model_dir.files import read_json, typed, write_json

VERSION = 1
"""Of result.json. It goes up when a field is renamed, removed or means something else; new fields may come at any
time."""


@dataclass
class JobEvent:
    """Something that happened to the job, such as the loss of a task."""

    time: float
    """Seconds since the epoch."""
    text: str


@dataclass
class Training:
    """Figures of a job that trained."""

    steps: int
    """Steps done, those before a restart included."""
    test: dict[str, float]
    """Of the test split, by metric; each is written as `test_<metric>`."""
    examples_per_second: float | None
    seconds_to_first_step: float | None
    """From the start of the job."""
    seconds_by_phase: dict[str, float]
    """Those seconds, by what they went into."""
    seconds_saving: float | None
    """In which training waited for checkpoints."""
    skipped_batches: int | None
    """With float16: batches that were read and not trained on, because their gradients overflowed. Null without it, and
    under api keras_fit, where they count as steps."""


@dataclass
class Computed:
    """Figures of a job with strategy graph."""

    result: dict[str, object]
    """What the workload returned."""


@dataclass
class Result:
    """result.json. Figures of Training or Computed stand beside the other fields."""

    job: str
    strategy: str
    figures: Training | Computed
    seconds: float
    """From the start of the job to its end."""
    generations: int
    """How often the cluster formed, restarts, stops and failures of the job included."""
    warnings: list[str]
    """What a reader of the figures should know, such as that the last checkpoint is not scored."""
    tasks: dict[str, str]
    """Each task's start line."""
    events: list[JobEvent]
    """The newest."""
    versions: dict[str, str]
    """Of the packages that decide the result."""
    fits: dict[str, object]
    """What decided the result: a start with other values is another job."""
    spec: dict[str, object]
    """The job spec, with defaults."""
    status: Literal["succeeded"] = "succeeded"
    version: int = VERSION
    """Of this format."""

    def document(self) -> dict[str, object]:
        """As it is written."""
        whole = asdict(self)
        figures, first = whole.pop("figures"), ("version", "status", "job", "strategy")
        if "test" in figures:
            tests = {f"{_TEST}{name}": figure for name, figure in figures.pop("test").items()}
            figures = {"steps": figures.pop("steps"), **tests, **figures}
        return {**{name: whole.pop(name) for name in first}, **figures, **whole}


_RESULT = TypeAdapter(Result)
_TEST = "test_"
_NOT_IN_EARLIER: dict[str, object] = {
    "seconds_by_phase": {},
    "seconds_saving": None,
    "skipped_batches": None,
    "warnings": [],
    "events": [],
    "versions": {},
}
"""Fields that a result of an earlier version may lack."""


@dataclass(frozen=True)
class Finished:
    """What a later start needs to know of the result of a job that succeeded here."""

    fits: dict[str, object]
    steps: int = 0
    """0 for a job that does not train."""


def write(model_dir: str, result: Result) -> None:
    write_json(layout.result(model_dir), result.document())


def read(model_dir: str) -> Result | None:
    """The result of a job that succeeded here; None while there is none, or none that is JSON.

    Raises:
        UserError: it is of a newer version, or lacks something.
    """
    path = layout.result(model_dir)
    found = read_json(path)
    try:
        return parse(found) if found else None
    except ValueError as error:
        raise UserError(
            f"model_dir: {path}: cannot be read: {error}; use the version of trainer that wrote it, or choose another "
            "model_dir"
        ) from None


def parse(found: Mapping[str, object]) -> Result:
    """The content of a result.json, also one of an earlier version.

    Raises:
        ValueError: it is of a newer version, or lacks something; the reason is one line.
    """
    found = {**_NOT_IN_EARLIER, **found}
    tests = {name.removeprefix(_TEST): value for name, value in found.items() if name.startswith(_TEST)}
    figures = {"result": found["result"]} if "result" in found else {**found, "test": tests}
    return typed(_RESULT, {**found, "figures": figures}, VERSION)


def finished(model_dir: str) -> Finished | None:
    """The result of a job that succeeded here, whichever it was; None while there is none."""
    found = read_json(layout.result(model_dir))
    fits, steps = found.get("fits"), found.get("steps", 0)
    if found.get("status") != "succeeded" or not isinstance(fits, dict):
        return None
    return Finished(fits, steps) if isinstance(steps, int) and 0 <= steps < 2**31 else None


def completed(spec: JobSpec, counts: dict[TaskType, int], digest: str) -> Finished | None:
    """The result of this very job, whose workload has that digest, as far as this task sees model_dir; None while
    there is none."""
    result = finished(spec.directory)
    if result is None or not has_all_steps(result, spec):
        return None
    different = compatibility.differences(result.fits, compatibility.key(spec, counts, digest), "result")
    return None if different else result


def has_all_steps(result: Finished, spec: JobSpec) -> bool:
    """Whether a result has the steps that a spec asks for; otherwise its training goes on."""
    asked = steps_asked(spec)
    return all(result.fits.get(name) == value for name, value in asked.items()) or spec.train.steps == result.steps


def steps_asked(spec: JobSpec) -> dict[str, object]:
    return {"train.steps": spec.train.steps, "train.epochs": spec.train.epochs}


def refuse_another_jobs(result: Finished, spec: JobSpec, fits: Mapping[str, object]) -> None:
    """Compares a result with this compatibility key.

    Raises:
        UserError: it is that of another job; names the differences.
    """
    different = compatibility.differences(result.fits, fits, "result")
    if different:
        raise UserError(
            f"model_dir: {spec.directory}: it holds the result of another job: {'; '.join(different)}; "
            "undo the change, or choose another model_dir"
        )


def set_warning(model_dir: str, task: str, text: str | None) -> None:
    """Replaces this task's warning, which begins with its name, in the result of a job that is over. The chief, which
    wrote the result, has notified this task since, and no longer writes it."""
    path = layout.result(model_dir)
    result = read_json(path)
    if result:
        known = result.get("warnings")
        others = [each for each in known if not str(each).startswith(task)] if isinstance(known, list) else []
        write_json(path, {**result, "warnings": others if text is None else [*others, text]})
