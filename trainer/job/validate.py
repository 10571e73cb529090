"""Turns plain data into a valid JobSpec: defaults, then the shape, then the rules between fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trainer.job.messages import nearest, show
from trainer.job.rules.problem import Problem
from trainer.job.rules.spec import problems as broken_rules
from trainer.job.spec import JobSpec
from trainer.job.strategies import STRATEGIES


def validate(data: dict[str, object]) -> tuple[JobSpec | None, list[Problem]]:
    """Returns the spec, or all its problems.

    If fields have the wrong shape, the rules are applied to the remaining ones.
    """
    try:
        spec = JobSpec.model_validate(_with_default_tasks(data))
    except ValidationError as error:
        details = error.errors(include_url=False)
    else:
        broken = broken_rules(spec)
        return None if broken else spec, broken
    problems = [_translate(detail) for detail in details]
    valid_part = {**_STAND_INS, **_without(data, [detail["loc"] for detail in details])}
    try:
        partial = JobSpec.model_validate(_with_default_tasks(valid_part))
    except ValidationError:
        return None, problems
    wrong = [problem.path for problem in problems]
    broken = broken_rules(partial)
    return None, problems + [p for p in broken if not any(_touch(a, b) for a in (p.path, *p.needs) for b in wrong)]


def _with_default_tasks(data: Mapping[str, object]) -> Mapping[str, object]:
    """Adds a worker, and the chief of a coordinated strategy. A program knows its tasks: it has a chief only if the
    spec names one, and then no worker by default.

    A chief that is not in the cluster gets localhost and a random port from TensorFlow, which no other container can
    reach (eager/remote.py)."""
    tasks = data.get("tasks", {})
    if not isinstance(tasks, dict):
        return data
    program, chief = data.get("program") is not None, tasks.get("chief") is not None
    coordinated = [name for name, row in STRATEGIES.items() if row.coordinated]
    added: dict[str, object] = {}
    if "worker" not in tasks and not (program and chief):
        added["worker"] = {}
    if data.get("strategy") in coordinated and not program and not chief:
        added["chief"] = {}
    return {**data, "tasks": {**tasks, **added}}


# For required fields that are missing or invalid, while the other rules are checked.
_STAND_INS = {"name": "x", "strategy": "multi_worker_mirrored"}


def _without(data: Mapping[str, object], places: list[tuple[int | str, ...]]) -> dict[str, object]:
    """A copy of nested mappings without those places."""
    kept: dict[str, object] = {}
    for key, value in data.items():
        if isinstance(key, str) and (key,) not in places:
            inner = [place[1:] for place in places if place[:1] == (key,)]
            kept[key] = _without(value, inner) if inner and isinstance(value, dict) else value
    return kept


def _touch(path: str, other: str) -> bool:
    """Whether they are the same setting, or one contains the other."""
    return f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")


_EARLIER_KEYS = {
    "deadlines.rendezvous": "is now deadlines.start, for the first formation, and deadlines.rejoin, for each later one",
    "communication.prefetch": (
        "was withdrawn in 0.3: it cost accuracy, and was hardly faster; remove it, and on a slow network set "
        "communication.gradients and communication.weights to bfloat16"
    ),
}
"""Keys of earlier versions, and what to do in their place."""


_MAIN_KEYS = {"data": "path", "tracking": "mlflow", "notify": "webhook"}
"""By section: the key that the user may have meant who wrote a text in place of the mapping."""


def _translate(detail: ErrorDetails) -> Problem:
    kind, place, value = detail["type"], detail["loc"], detail["input"]
    path = ".".join(part if part and part.isprintable() else repr(part) for part in map(str, place)) or "top level"
    if kind == "missing":
        return Problem(path, None, "is required")
    if kind == "extra_forbidden" and path in _EARLIER_KEYS:
        return Problem(path, value, _EARLIER_KEYS[path])
    if kind == "extra_forbidden":
        return Problem(path, value, f"unknown key{_did_you_mean(place)}")
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
        return Problem(path, value, f"must be one of {', '.join(known)}{nearest(value, known)}")
    if kind == "model_type":
        key = _MAIN_KEYS.get(str(place[0])) if isinstance(value, str) else None
        example = f": {{{key}: {_line(value)}}}" if key else ""
        return Problem(path, value, f"must be a mapping of settings{example}")
    if kind == "list_type" and isinstance(value, str):
        of_words = place[-1] in ("program", "command")
        rule = f"of words: [{', '.join(map(_line, value.split()))}]" if of_words else f"as in [{_line(value)}]"
        return Problem(path, value, f"must be a list {rule}")
    if kind == "string_type" and place[-1] == "[key]":
        return Problem(".".join(map(str, place[:-2])), value, "a name must be text: write it in quotes")
    if kind == "string_type" and isinstance(value, (bool, int, float)):
        return Problem(path, value, f'must be text: write it in quotes, as in "{show(value)}"')
    message = detail["msg"].removeprefix("Value error, ")
    return Problem(path, value, message[0].lower() + message[1:] if message == detail["msg"] else message)


def _line(text: object) -> str:
    """A text as a message may quote it."""
    return text if isinstance(text, str) and text.isprintable() else show(text)


def _did_you_mean(place: tuple[int | str, ...]) -> str:
    model: type[BaseModel] = JobSpec
    train = next(_models_in(JobSpec.model_fields["train"].annotation))
    if len(place) == 1 and place[0] in train.model_fields:
        return f"; did you mean train.{place[0]}?"
    for part in place[:-1]:
        # A key of a mapping, such as the name of a variable under secrets, is not a field.
        if part in model.model_fields:
            model = next(_models_in(model.model_fields[part].annotation), model)
    return nearest(place[-1], model.model_fields) or f"; known here: {', '.join(model.model_fields)}"


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """The models in a type such as `Annotated[Model, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
