"""From a file, `--set` and the environment to a valid JobSpec, or to every problem at once."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from trainer.job.errors import UserError
from trainer.job.kubernetes import Kubernetes
from trainer.job.names import TASK_TYPES
from trainer.job.rules import Problem
from trainer.job.spec import JobSpec

JOB_VARIABLE = "TRAINER_JOB"
"""Environment variable of a task that holds its job spec as JSON."""
SET_VARIABLE = "TRAINER_SET"
"""Environment variable with overrides as on the command line: 'train.steps=600 train.seed=1'."""


class UniqueKeyLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice; PyYAML keeps the last one in silence."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} is given twice", key.start_mark
                    )
                seen.add(key.value)
        return node


def load_file(path: str | Path, overrides: Iterable[str] = (), environ: Mapping[str, str] = os.environ) -> JobSpec:
    """Reads a spec; a workload, dataset or secret's file in it is taken relative to the spec.

    Args:
        overrides: `path.to.key=value` each, the value in YAML; they win over the environment's.

    Raises:
        UserError: all that is wrong, one line each.
    """
    raw = _mapping(_parse(read_text(path), str(path)), str(path))
    for key in ("workload", "dataset"):
        value = raw.get(key)
        if isinstance(value, str) and value.endswith((".py", ".npz")):
            raw[key] = os.path.normpath(Path(path).parent / value)
    for source in raw["secrets"].values() if isinstance(raw.get("secrets"), dict) else ():
        if isinstance(source, dict) and isinstance(file := source.get("file"), str):
            source["file"] = os.path.normpath(Path(path).parent / Path(file).expanduser())
    return _build(raw, str(path), [*_environment_overrides(environ), *(("--set", each) for each in overrides)])


def read_text(path: str | Path) -> str:
    """A file that the user named.

    Raises:
        UserError: it cannot be read, or is no text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def load_environment(environ: Mapping[str, str] = os.environ) -> JobSpec:
    """The spec of a task in a container, from TRAINER_JOB and TRAINER_SET.

    Raises:
        UserError: all that is wrong, one line each.
    """
    text = environ.get(JOB_VARIABLE)
    if not text:
        raise UserError(f"{JOB_VARIABLE} is not set: it holds the job spec as JSON; `trainer local` sets it for you")
    try:
        raw = json.loads(text)  # and not YAML, which folds some Unicode line breaks into blanks
    except (ValueError, RecursionError) as error:
        raise UserError(f"{JOB_VARIABLE}: {show(text)}: is not JSON: {error}") from None
    return _build(_mapping(raw, JOB_VARIABLE), JOB_VARIABLE, _environment_overrides(environ))


def build(raw: dict[str, Any]) -> JobSpec:
    """A spec from plain data.

    Raises:
        UserError: all that is wrong, one line each.
    """
    return _build(raw, "spec", [])


def schema() -> str:
    """JSON Schema of the spec, for editors."""
    whole = JobSpec.model_json_schema()
    models = {"JobSpec": whole, **whole["$defs"]}
    # The text under a field describes it. Pydantic's use_attribute_docstrings would read the source for that
    # at every start of every command, which costs 20 ms.
    for part in (JobSpec, Kubernetes):
        for model in ast.parse(Path(inspect.getfile(part)).read_text(encoding="utf-8")).body:
            if isinstance(model, ast.ClassDef) and model.name in models:
                for field, text in itertools.pairwise(model.body):
                    if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                        about = models[model.name]["properties"][ast.unparse(field.target)]
                        about["description"] = ast.literal_eval(text.value)
    return json.dumps(whole, indent=2)


def _build(raw: dict[str, Any], source: str, overrides: Iterable[tuple[str, str]]) -> JobSpec:
    data = _expand_counts(raw)
    problems = [p for origin, override in overrides if (p := _apply(data, origin, override))]
    spec, found = _validate(data)
    problems += [f"{p.path}: {show(p.value)}: {p.rule}" for p in found]
    if spec is None or problems:
        raise UserError(*(f"{source}: {problem}" for problem in dict.fromkeys(problems)))
    return spec


def _parse(text: str, source: str) -> Any:
    try:
        return yaml.load(text, Loader=UniqueKeyLoader)  # noqa: S506 (a SafeLoader)
    except Exception as error:
        raise not_yaml(error, source) from None


def not_yaml(error: Exception, source: str) -> UserError:
    """What PyYAML says, in one line with the place. Any error: it lets through what a constructor raises, KeyError
    for `!!bool x`."""
    mark = getattr(error, "problem_mark", None)
    where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    told = [part for name in ("context", "problem") if (part := getattr(error, name, None))]
    return UserError(f"{where}: not valid YAML: {' '.join((', '.join(told) or str(error)).split())}")


def _mapping(raw: Any, source: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise UserError(f"{source}: {show(raw)}: must be a mapping of settings")
    return raw


def _environment_overrides(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    text = environ.get(SET_VARIABLE, "")
    try:
        return [(SET_VARIABLE, each) for each in shlex.split(text)]
    except ValueError as error:
        raise UserError(f"{SET_VARIABLE}: {show(text)}: {error}; quote each path=value as in a shell") from None


def _expand_counts(raw: dict[str, Any]) -> dict[str, Any]:
    """A copy in which `worker: 3` is `worker: {replicas: 3}`, so that overrides find a mapping."""
    data: dict[str, Any] = {k: dict(v) if isinstance(v, dict) else v for k, v in raw.items()}
    tasks = data.get("tasks")
    if isinstance(tasks, dict):
        for task_type in TASK_TYPES:
            value = tasks.get(task_type)
            if isinstance(value, int) and not isinstance(value, bool):
                tasks[task_type] = {"replicas": value}
            elif isinstance(value, dict):
                tasks[task_type] = dict(value)
    return data


def _apply(data: dict[str, Any], origin: str, override: str) -> str | None:
    """Puts one `path=value` into data; returns what is wrong with it, if anything."""
    path, equals, text = override.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        return f"{origin} {override!r}: must be path=value, for example train.steps=600"
    try:
        value = _parse(text, f"{origin} {override!r}")
    except UserError as error:
        return str(error)
    if len(keys) == 2 and keys[0] == "tasks" and isinstance(value, int):
        keys.append("replicas")
    node: Any = data
    for key in keys[:-1]:
        if node.get(key) is None:
            node[key] = {}
        node = node[key]
        if not isinstance(node, dict):
            return f"{origin} {override!r}: {key!r} is not a mapping of settings"
    node[keys[-1]] = value
    return None


def _validate(data: dict[str, Any]) -> tuple[JobSpec | None, list[Problem]]:
    """Pydantic skips the rules between fields when a field is wrong; so the wrong fields are taken out and it
    is asked again: every problem is told at once."""
    try:
        return JobSpec.model_validate(data), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    problems = [problem for detail in details for problem in _translate(detail)]
    wrong = [problem.path for problem in problems]
    rest = {**_STAND_INS, **_without(data, [detail["loc"] for detail in details])}
    try:
        JobSpec.model_validate(rest)
    except ValidationError as error:
        rules = [p for detail in error.errors() if detail["type"] == "rules" for p in _translate(detail)]
        problems += [p for p in rules if not any(_touch(a, b) for a in (p.path, *p.needs) for b in wrong)]
    return None, problems


# For what is required, while the other rules are looked at.
_STAND_INS = {"name": "x", "strategy": "multi_worker_mirrored"}


def _without(data: Any, places: list[tuple[Any, ...]]) -> Any:
    """A copy of nested mappings that lacks those places."""
    if not isinstance(data, dict) or not places:
        return data
    return {
        key: _without(value, [place[1:] for place in places if place[:1] == (key,)])
        for key, value in data.items()
        if isinstance(key, str) and (key,) not in places
    }


def _touch(path: str, other: str) -> bool:
    """Whether they are the same setting, or one holds the other."""
    return f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")


def _translate(detail: Any) -> list[Problem]:
    kind, place, value = detail["type"], detail["loc"], detail["input"]
    if kind == "rules":
        problems: list[Problem] = detail["ctx"]["problems"]
        return problems
    path = ".".join(part if part and part.isprintable() else repr(part) for part in map(str, place)) or "top level"
    if kind == "missing":
        return [Problem(path, None, "is required")]
    if kind == "extra_forbidden":
        return [Problem(path, value, f"unknown key{_did_you_mean(place)}")]
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
        return [Problem(path, value, f"must be one of {', '.join(known)}{nearest(value, known)}")]
    if kind == "model_type":
        return [Problem(path, value, "must be a mapping of settings")]
    return [Problem(path, value, detail["msg"][0].lower() + detail["msg"][1:])]


def _did_you_mean(place: tuple[Any, ...]) -> str:
    model: type[BaseModel] = JobSpec
    for part in place[:-1]:
        # A key of a mapping, such as the name of a variable under secrets, is no field.
        if part in model.model_fields:
            model = next(_models_in(model.model_fields[part].annotation), model)
    return nearest(place[-1], model.model_fields) or f"; known here: {', '.join(model.model_fields)}"


def nearest(value: object, known: Iterable[str]) -> str:
    """`; did you mean ...?` for a slip of the pen, or nothing."""
    from difflib import get_close_matches  # here, because a start without mistakes is 4 ms faster without it

    near = get_close_matches(str(value), known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in a type such as `Annotated[Model, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def show(value: object) -> str:
    """A value in a message: as JSON, cut where it gets long."""
    try:
        text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):  # a key that is no text, a mapping within itself, 5,000 digits
        text = f"({type(value).__name__})"
    return text if len(text) <= 80 else text[:77] + "..."
