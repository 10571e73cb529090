"""Loads a JobSpec from a file, `--set` and the environment, and reports all its problems together."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainer.job import environment
from trainer.job.data import scheme
from trainer.job.errors import UserError
from trainer.job.messages import show
from trainer.job.names import TASK_TYPES
from trainer.job.spec import JobSpec
from trainer.job.validate import validate


def load_file(path: str | Path, overrides: Iterable[str] = (), environ: Mapping[str, str] = os.environ) -> JobSpec:
    """Reads a spec; paths of workload, dataset, data, code, init_from and secrets in it are relative to the spec.

    Args:
        overrides: `path.to.key=value` each, the value in YAML; they take precedence over the environment's. Paths in
            both are relative to the current folder, as those of any command.

    Raises:
        UserError: all that is wrong, one line each.
    """
    from trainer.job.yaml_text import parse

    raw = _mapping(parse(read_text(path), str(path)), str(path))
    for key in ("workload", "dataset"):
        value = raw.get(key)
        if isinstance(value, str) and value.endswith((".py", ".npz")):
            raw[key] = os.path.normpath(Path(path).parent / value)
    if raw.get("program") is not None:
        raw.setdefault("code", ".")
    if isinstance(code := raw.get("code"), (str, list)):
        raw["code"] = [_beside(path, each) for each in ([code] if isinstance(code, str) else code)]
    if isinstance(python := raw.get("python"), str):
        raw["python"] = _beside(path, python)
    data = raw.get("data")
    for source in data.values() if isinstance(data, dict) else ():
        if isinstance(source, dict) and isinstance(folder := source.get("path"), str) and not scheme(folder):
            source["path"] = _beside(path, folder)
    init_from = raw.get("init_from")
    begin = {"path": init_from} if isinstance(init_from, str) else init_from
    if isinstance(begin, dict) and begin.get("data") is None:
        raw["init_from"] = {**begin, "path": _beside(path, begin.get("path"))}
    secrets = raw.get("secrets")
    for source in secrets.values() if isinstance(secrets, dict) else ():
        if isinstance(source, dict) and isinstance(file := source.get("file"), str):
            source["file"] = _beside(path, file)
    return _build(raw, str(path), [*_environment_overrides(environ), *(("--set", each) for each in overrides)])


def _beside(path: str | Path, file: object) -> object:
    if not isinstance(file, str):
        return file
    try:
        return os.path.normpath(Path(path).parent / Path(file).expanduser())
    except RuntimeError:
        raise UserError(
            f"{path}: {file!r}: begins with the home folder of an unknown user; write the whole path"
        ) from None


def read_text(path: str | Path) -> str:
    """Reads a file that the user named.

    Raises:
        UserError: it cannot be read, or is not text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def load_environment(environ: Mapping[str, str] = os.environ) -> JobSpec:
    """Reads the spec of a task in a container from TRAINER_JOB and TRAINER_SET.

    Raises:
        UserError: all that is wrong, one line each.
    """
    text = environ.get(environment.JOB)
    if not text:
        raise UserError(f"{environment.JOB} is not set: it holds the job spec as JSON; `trainer local` sets it for you")
    try:
        raw = json.loads(text)  # not YAML, which turns some Unicode line breaks into spaces
    except (ValueError, RecursionError) as error:
        raise UserError(f"{environment.JOB}: {show(text)}: is not JSON: {error}") from None
    return _build(_mapping(raw, environment.JOB), environment.JOB, _environment_overrides(environ))


def build(raw: Mapping[str, object]) -> JobSpec:
    """Builds a spec from plain data.

    Raises:
        UserError: all that is wrong, one line each.
    """
    return _build(raw, "spec", [])


def _build(raw: Mapping[str, object], source: str, overrides: Iterable[tuple[str, str]]) -> JobSpec:
    data = _expand_counts(raw)
    problems = [p for origin, override in overrides if (p := _apply(data, origin, override))]
    spec, broken = validate(data)
    problems += [f"{p.path}: {show(p.value)}: {p.rule}" for p in broken]
    if spec is None or problems:
        raise UserError(*(f"{source}: {problem}" for problem in dict.fromkeys(problems)))
    return spec


def _mapping(raw: object, source: str) -> dict[str, object]:
    if not isinstance(raw, dict):
        raise UserError(f"{source}: {show(raw)}: must be a mapping of settings")
    return raw


def _environment_overrides(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    text = environ.get(environment.SET, "")
    try:
        return [(environment.SET, each) for each in shlex.split(text)]
    except ValueError as error:
        raise UserError(f"{environment.SET}: {show(text)}: {error}; quote each path=value as in a shell") from None


def _expand_counts(raw: Mapping[str, object]) -> dict[str, object]:
    """A copy in which `worker: 3` is `worker: {replicas: 3}`, so that overrides find a mapping."""
    data: dict[str, object] = {k: dict(v) if isinstance(v, dict) else v for k, v in raw.items()}
    tasks = data.get("tasks")
    if isinstance(tasks, dict):
        for task_type in TASK_TYPES:
            value = tasks.get(task_type)
            if isinstance(value, int) and not isinstance(value, bool):
                tasks[task_type] = {"replicas": value}
            elif isinstance(value, dict):
                tasks[task_type] = dict(value)
    return data


def _apply(data: dict[str, object], origin: str, override: str) -> str | None:
    """Puts one `path=value` into data; returns an error message if it is not valid."""
    path, equals, text = override.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        return f"{origin} {override!r}: must be path=value, for example train.steps=600"
    from trainer.job.yaml_text import parse  # not at the start of a task, whose spec is JSON

    try:
        value = parse(text, f"{origin} {override!r}")
    except UserError as error:
        return str(error)
    if len(keys) == 2 and keys[0] == "tasks" and isinstance(value, int):
        keys.append("replicas")
    node = data
    for key in keys[:-1]:
        if node.get(key) is None:
            node[key] = {}
        inner = node[key]
        if not isinstance(inner, dict):
            return f"{origin} {override!r}: {key!r} is not a mapping of settings"
        node = inner
    node[keys[-1]] = value
    return None
