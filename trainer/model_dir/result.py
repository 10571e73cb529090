"""result.json: the results of a successful job, and how a later start recognises them as its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Literal

from pydantic import TypeAdapter

from trainer.job.errors import UserError
from trainer.job.names import TaskType
from trainer.job.spec import JobSpec
from trainer.model_dir import compatibility, layout
from trainer.model_dir.best import BestCheckpoint
from trainer.model_dir.files import read_json, typed, write_json
from trainer.model_dir.stacks import Stacks

EQUAL = "equal"
VERSION = 1
"""Version of result.json. It increases when a field is renamed, removed or changes its meaning, not when one is
added."""

Kind = Literal["", "formed", "lost", "restarted", "resized", "stalled", "hung", "slow"]
"""The kind of an event; empty for any other."""


@dataclass
class JobEvent:
    """Something that happened to the job, such as the loss of a task."""

    time: float
    """Seconds since the epoch."""
    text: str
    kind: str = ""
    """One of Kind, unless a later version has written it."""
    task: str | None = None
    """The task that it happened to, if to one."""


@dataclass
class Training:
    """Figures of a job that trained."""

    steps: int
    """Steps done, including those before a restart."""
    test: dict[str, float]
    """Metrics of the test split; each is written as `test_<metric>`."""
    examples_per_second: float | None
    """Of all tasks together."""
    seconds_to_first_step: float | None
    """Seconds since the start of the job."""
    seconds_by_phase: dict[str, float]
    """Those seconds, by phase."""
    seconds_saving: float | None
    """Seconds in which training waited for checkpoints."""
    skipped_batches: int | None
    """With float16: batches that were read but not trained on, because their gradients overflowed. Null without it."""
    exports: dict[str, str] = field(default_factory=dict)
    """By name in export/: "equal" if a new process could load it without the workload file and its outputs for some
    examples of the test split are those of the trained model. Otherwise how it differs, and why."""
    stopped_early: str | None = None
    """Which callback has ended the training before its last step, why, and at which epoch. Null if none has."""
    final_weights: str | None = None
    """Which callbacks have replaced the weights of the last step, as EarlyStopping does to restore the best. Null: the
    model that is tested and exported is that of the last step."""
    init_from: str | None = None
    """Which variables the job began with by init_from, and which the file lacks."""
    best: BestCheckpoint | None = None
    """The best checkpoint, with keep_best."""
    bad_records: int | None = None
    """Damaged records of trainer.files that were left out of the training data; null for other data."""


@dataclass
class Computed:
    """Figures of a job with strategy graph."""

    result: dict[str, object]
    """The return value of the workload."""


@dataclass
class Ran:
    """Figures of a job with a program."""

    reported: dict[str, object]
    """What the chief's program reported last (trainer.report)."""
    steps: int
    """The last step that it reported, or 0."""
    seconds_to_first_step: float | None
    """Seconds from the start of the job to the first report of a step."""


@dataclass
class Result:
    """Content of result.json. The fields of Training, Computed or Ran are written beside the others."""

    job: str
    strategy: str
    figures: Training | Computed | Ran
    seconds: float
    """Seconds from the start of the job to its end."""
    generations: int
    """Number of times the cluster formed, including after restarts, stops and failures of the job."""
    warnings: list[str]
    """Limitations of the results, such as a last checkpoint that is not scored."""
    tasks: dict[str, str]
    """Each task's start line."""
    events: list[JobEvent]
    """The newest since the job was started, over restarts of its chief."""
    versions: dict[str, str]
    """Versions of the packages that affect the result."""
    compatibility_key: dict[str, object]
    """Settings that affect the result: a start with other values is another job."""
    spec: dict[str, object]
    """The job spec, with defaults."""
    hangs: list[Stacks] = field(default_factory=list)
    """The stacks of all tasks when the job hung, the newest."""
    status: Literal["succeeded"] = "succeeded"
    version: int = VERSION
    """Version of this format."""

    def document(self) -> dict[str, object]:
        """The JSON object as written."""
        document = asdict(self)
        figures, first = document.pop("figures"), ("version", "status", "job", "strategy")
        if "test" in figures:
            tests = {f"{_TEST}{name}": figure for name, figure in figures.pop("test").items()}
            figures = {"steps": figures.pop("steps"), **tests, **figures}
        return {**{name: document.pop(name) for name in first}, **figures, **document}


_TEST = "test_"
_NOT_IN_EARLIER: dict[str, object] = {
    "seconds_by_phase": {},
    "seconds_saving": None,
    "skipped_batches": None,
    "stopped_early": None,
    "final_weights": None,
    "warnings": [],
    "events": [],
    "versions": {},
}
"""Fields that a result of an earlier version may lack."""
_NOT_IN_BRIEF: dict[str, object] = {"tasks": {}, "events": [], "versions": {}, "compatibility_key": {}, "spec": {}}


@dataclass(frozen=True)
class Finished:
    """The part of an earlier result that a later start needs."""

    key: dict[str, object]
    steps: int = 0
    """0 for a job that does not train."""


def write(model_dir: str, result: Result) -> None:
    # All tasks are told then that the job is done: a loss of power must not undo it.
    write_json(layout.result(model_dir), result.document(), sync=True)


def read(model_dir: str) -> Result | None:
    """Reads the result of a successful job; None if there is none, or it is not JSON.

    Raises:
        UserError: its version is newer, or a field is missing.
    """
    path = layout.result(model_dir)
    document = read_json(path)
    try:
        return parse(document) if document else None
    except ValueError as error:
        raise UserError(
            f"model_dir: {path}: cannot be read: {error}; use the version of trainer that wrote it, or choose another "
            "model_dir"
        ) from None


@cache
def _adapter() -> TypeAdapter[Result]:
    return TypeAdapter(Result)


def parse(found: Mapping[str, object]) -> Result:
    """Parses a result.json, also one of an earlier version.

    Raises:
        ValueError: its version is newer, or a field is missing; the reason is one line.
    """
    found = {**_NOT_IN_EARLIER, "compatibility_key": found.get("fits"), **found}  # fits: until version 0.2
    tests = {name.removeprefix(_TEST): value for name, value in found.items() if name.startswith(_TEST)}
    figures = {"result": found["result"]} if "result" in found else {**found, "test": tests}
    if "reported" in found:
        figures = {name: found.get(name) for name in ("reported", "steps", "seconds_to_first_step")}
    return typed(_adapter(), {**found, "figures": figures}, VERSION)


def brief(found: Result) -> dict[str, object]:
    """The JSON object without what grows with the number of tasks, of events or of the spec's keys."""
    return {name: value for name, value in found.document().items() if name not in _NOT_IN_BRIEF}


def parse_brief(found: Mapping[str, object]) -> Result:
    """Parses the object of `brief`; what it leaves out is empty.

    Raises:
        ValueError: as `parse`.
    """
    return parse({**_NOT_IN_BRIEF, **found})


def finished(model_dir: str) -> Finished | None:
    """The result of any job that succeeded in this model_dir; None if there is none."""
    document = read_json(layout.result(model_dir))
    key, steps = (
        document.get("compatibility_key", document.get("fits")),
        document.get("steps", 0),
    )  # fits: until version 0.2
    if document.get("status") != "succeeded" or not isinstance(key, dict):
        return None
    return Finished(key, steps) if isinstance(steps, int) and 0 <= steps < 2**63 else None


def completed(spec: JobSpec, counts: dict[TaskType, int], digest: str) -> Finished | None:
    """The result of this job, identified by its spec and the digest of its workload; None if there is none, or this
    task cannot read model_dir."""
    result = finished(spec.directory)
    if result is None or not has_all_steps(result, spec):
        return None
    different = compatibility.differences(result.key, compatibility.key(spec, counts, digest), "result")
    return None if different else result


def has_all_steps(result: Finished, spec: JobSpec) -> bool:
    """Whether a result has the steps that a spec asks for; otherwise training continues."""
    asked = steps_asked(spec)
    return all(result.key.get(name) == value for name, value in asked.items()) or spec.train.steps == result.steps


def steps_asked(spec: JobSpec) -> dict[str, object]:
    train = spec.train
    return {"train.steps": train.steps, "train.epochs": train.epochs, "train.steps_per_epoch": train.steps_per_epoch}


def refuse_another_jobs(result: Finished, spec: JobSpec, key: Mapping[str, object]) -> None:
    """Compares a result with this compatibility key.

    Raises:
        UserError: the result is another job's; the message names the differences.
    """
    different = compatibility.differences(result.key, key, "result")
    if different:
        raise UserError(
            f"model_dir: {spec.directory}: it holds the result of another job: {'; '.join(different)}; "
            "undo the change, or choose another model_dir"
        )


def set_best(model_dir: str, best: Mapping[str, object]) -> None:
    """Adds the best checkpoint that an evaluator has found to the result of a finished job."""
    path = layout.result(model_dir)
    if result := read_json(path):
        write_json(path, {**result, "best": dict(best)})


def set_warning(model_dir: str, task: str, text: str | None) -> None:
    """Replaces this task's warning, which begins with its name, in the result of a finished job. The chief has written
    the result before it notified this task, and does not write it again."""
    path = layout.result(model_dir)
    result = read_json(path)
    if result:
        known = result.get("warnings")
        others = [each for each in known if not str(each).startswith(task)] if isinstance(known, list) else []
        write_json(path, {**result, "warnings": others if text is None else [*others, text]})
