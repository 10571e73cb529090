"""Builds a valid job spec from settings, and formats notes as lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pydantic import BaseModel

from trainer.job.errors import UserError
from trainer.job.kubernetes import Kubernetes
from trainer.job.load import build
from trainer.job.messages import show as show_value
from trainer.job.names import TASK_TYPES
from trainer.job.spec import JobSpec, TaskGroup, Tasks
from trainer.tfjob.manifest import TYPES, Path, dotted, show

LEFT_OUT = "is left out: "
"""The beginning of the reason why a setting has no place in the spec."""


class Note(NamedTuple):
    """A report about a setting of the TFJob: it is left out, or means something else in the spec."""

    origin: Path
    value: object
    reason: str


class Setting(NamedTuple):
    """A value for the spec; None if there is none."""

    path: Path
    value: object
    origins: tuple[Path, ...]
    """The places in the TFJob that the value is from."""
    notes: tuple[Note, ...] = ()
    """Notes that are reported if the spec accepts the value."""
    required: bool = False
    """Whether a refused value is an error. Otherwise the setting is left out, with a note."""
    also: tuple[tuple[Path, object], ...] = ()
    """Further values, without which this one is wrong: the spec has all of them or none."""


_MODELS: dict[str, type[BaseModel]] = {"tasks": Tasks, "kubernetes": Kubernetes, **dict.fromkeys(TASK_TYPES, TaskGroup)}
"""The models of the sections whose keys are put in order."""


def fit(settings: list[Setting]) -> tuple[dict[str, object], list[Note]]:
    """A valid spec of the settings that change it, and notes about those that are in it or refused.

    Raises:
        UserError: a required setting is refused.
    """
    kept = [each for each in settings if each.required]
    try:
        spec = build(_nested(kept))
    except UserError as error:
        raise UserError(*(_at_origin(problem, settings) for problem in error.problems)) from None
    notes: list[Note] = []
    for each in settings:
        if each.required:
            continue
        try:
            wider = build(_nested([*kept, each]))
        except UserError as error:
            why = f"{LEFT_OUT}{_rule(error.problems[0], each)}"
            notes += [Note(origin, each.value, why) for origin in each.origins]
            continue
        notes += each.notes
        if wider != spec:
            kept, spec = [*kept, each], wider
    return _ordered(_nested(kept)), notes


def _ordered(raw: dict[str, object], model: type[BaseModel] = JobSpec) -> dict[str, object]:
    """The settings in the order of the reference, and tasks of which only the number is set as a number."""
    ordered: dict[str, object] = {}
    for key in model.model_fields:
        value = raw.get(key)
        if isinstance(value, dict) and (inner := _MODELS.get(key)):
            value = _ordered(value, inner)
            value = value["replicas"] if [*value] == ["replicas"] else value
        if key in raw:
            ordered[key] = value
    return ordered


def _nested(settings: Iterable[Setting]) -> dict[str, object]:
    raw: dict[str, object] = {}
    for each in settings:
        for path, value in ((each.path, each.value), *each.also) if each.value is not None else ():
            node = raw
            for key in path[:-1]:
                inner = node.setdefault(key, {})
                assert isinstance(inner, dict)
                node = inner
            node[path[-1]] = value
    return raw


def _rule(problem: str, setting: Setting) -> str:
    """The rule that a setting breaks; with its path, if that is another or within the setting."""
    text = problem.removeprefix("spec: ")
    own = text.removeprefix(f"{'.'.join(setting.path)}: {show_value(setting.value)}: ")
    needs = " and ".join(f"{'.'.join(path)}: {value}" for path, value in setting.also)
    return f"it needs {needs}; {text}" if needs and own == text else own


def _at_origin(problem: str, settings: Iterable[Setting]) -> str:
    """A problem of the spec, at its path in the TFJob."""
    origins = {".".join(each.path): each.origins[0] for each in settings} | {"tasks": TYPES}
    text = problem.removeprefix("spec: ")
    for path in sorted(origins, key=len, reverse=True):
        if text.startswith((f"{path}: ", f"{path}.")):
            return dotted(origins[path]) + text[len(path) :]
    return text


def lines(notes: list[Note]) -> list[str]:
    """`PATH: VALUE: reason`, in one line where it is the same for several types of tasks."""
    types: dict[tuple[Path, str, str], list[str]] = {}
    for origin, value, reason in notes:
        within = origin[:2] == TYPES and len(origin) > 3
        key = ((*TYPES, "", *origin[3:]) if within else origin, show(value), reason)
        types.setdefault(key, []).extend(origin[2:3] if within else ())
    return [f"{_place(path, names)}: {value}: {reason}" for (path, value, reason), names in types.items()]


def _place(path: Path, types: list[str]) -> str:
    if not types:
        return dotted(path)
    name = types[0] if len(types) == 1 else "{" + ",".join(types) + "}"
    return dotted((*TYPES, name, *path[3:]))
