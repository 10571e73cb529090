"""`trainer import`: converts a Kubeflow TFJob to a job spec, and reports every setting that it drops or changes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import yaml

from trainer.job.errors import UserError
from trainer.job.load import read_text
from trainer.job.names import TASK_TYPES, TaskType
from trainer.tfjob import rules
from trainer.tfjob.manifest import CONTAINER, POD, TYPES, Settings, dotted, flat, mapping, read, show
from trainer.tfjob.pods import pods
from trainer.tfjob.reasons import reason
from trainer.tfjob.rules import Groups
from trainer.tfjob.spec import LEFT_OUT, Note, Setting, fit, lines
from trainer.tfjob.variables import variables

API_VERSION, KIND = "kubeflow.org/v1", "TFJob"
_AS_V1 = ("kubeflow.org/v1beta2", "kubeflow.org/v1beta1")
"""Versions of which v1 is a copy (kubeflow/training-operator#993, #858)."""

STDIN = "-"
"""The name of standard input on the command line."""

_TYPES: dict[str, TaskType] = {
    "ps": "ps", "worker": "worker", "chief": "chief", "master": "chief", "evaluator": "evaluator",
}  # fmt: skip


def convert(text: str, source: str, entrypoint: Sequence[str] = ()) -> tuple[dict[str, object], list[str]]:
    """Converts the first TFJob to a job spec, as plain data.

    Args:
        text: manifests in YAML.
        source: the name of the text in messages.
        entrypoint: words of the image's ENTRYPOINT, for types without a command.

    Returns:
        A valid spec, and a line for each setting that is dropped or changed.

    Raises:
        UserError: there is no TFJob of kubeflow.org/v1 or its betas, or it cannot be converted.
    """
    documents = _with_items(read(text, source))
    try:
        job, others = _tfjob(documents)
        settings = flat(job)
        groups, dropped = _groups(settings, list(mapping(mapping(job.get("spec"), ("spec",)).get(TYPES[-1]), TYPES)))
        results = [*dropped, *rules.top(settings, groups), *rules.programs(settings, groups, list(entrypoint))]
        results += [*rules.tasks(settings, groups, rules.gpu_resource(settings)), *variables(settings, groups)]
        results += [*rules.run(settings, groups), *pods(settings, groups)]
        raw, fitted = fit([each for each in results if isinstance(each, Setting)])
    except UserError as error:
        raise UserError(*(f"{source}: {problem}" for problem in error.problems)) from None
    notes = [each for each in results if isinstance(each, Note)]
    left = [Note(path, value, f"{LEFT_OUT}{reason(path)}") for path, value in settings.items()]
    return raw, lines([*notes, *fitted, *left, *others])


def convert_file(path: str, entrypoint: Sequence[str] = ()) -> tuple[dict[str, object], list[str]]:
    """Converts a file, or standard input for `-`, as `convert`.

    Raises:
        UserError: it cannot be read, or as `convert`.
    """
    if path != STDIN:
        return convert(read_text(path), path, entrypoint)
    try:
        text = sys.stdin.buffer.read().decode()
    except (OSError, ValueError) as error:
        raise UserError(f"standard input: cannot be read: {error}") from None
    return convert(text, "standard input", entrypoint)


def to_yaml(raw: dict[str, object]) -> str:
    """A spec as YAML for people: short mappings on one line, keys in order."""
    return yaml.safe_dump(raw, sort_keys=False, default_flow_style=None, width=120)


def _with_items(documents: list[object]) -> list[tuple[str, object]]:
    """Documents by their place; of a List, as of `kubectl get tfjobs -o yaml`, its items."""
    found: list[tuple[str, object]] = []
    for number, each in enumerate(documents, 1):
        items = each.get("items") if isinstance(each, dict) and str(each.get("kind")).endswith("List") else None
        if isinstance(each, dict) and isinstance(items, list):
            known = {} if each["kind"] == "List" else {"kind": each["kind"][:-4], "apiVersion": each.get("apiVersion")}
            found += [
                (f"document {number}, item {i}", {**known, **item} if isinstance(item, dict) else item)
                for i, item in enumerate(items, 1)
            ]
        else:
            found.append((f"document {number}", each))
    return found


def _tfjob(documents: list[tuple[str, object]]) -> tuple[dict[str, object], list[Note]]:
    """The first TFJob, without its kind, and notes about its version and the other documents."""
    there = [(place, each) for place, each in documents if each is not None]
    jobs = [each for _, each in there if isinstance(each, dict) and each.get("kind") == KIND]
    if not jobs:
        first = there[0][1] if there else None
        kind = first.get("kind") if isinstance(first, dict) else first
        raise UserError(f"kind: {show(kind)}: must be a {KIND}")
    version = jobs[0].get("apiVersion")
    if version not in (API_VERSION, *_AS_V1):
        raise UserError(f"apiVersion: {show(version)}: must be {API_VERSION}, v1beta2 or v1beta1")
    older = [Note(("apiVersion",), version, f"is read as {API_VERSION}, which is a copy of it")]
    about = f"{LEFT_OUT}only the first TFJob of a file becomes a spec"
    others = [Note((place,), _title(each), about) for place, each in there if each is not jobs[0]]
    notes = [*(older if version in _AS_V1 else ()), *others]
    return {key: value for key, value in jobs[0].items() if key not in ("apiVersion", "kind")}, notes


def _title(document: object) -> object:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{document.get('kind')} {name}" if isinstance(document, dict) else document


def _groups(settings: Settings, keys: list[str]) -> tuple[Groups, list[Note]]:
    """The types of tasks, and notes about those that have no tasks."""
    groups: Groups = {}
    notes = []
    for key in keys:
        base, task_type = (*TYPES, key), _TYPES.get(key.lower())
        if task_type is None:
            raise UserError(f"{dotted(TYPES)}: {show(key)}: must be Chief, Worker, PS, Evaluator, or Master for Chief")
        count = settings.get((*base, "replicas"))
        if type(count) is int and count == 0:
            notes.append(Note((*base, "replicas"), 0, f"{LEFT_OUT}a type without tasks"))
            for path in [path for path in settings if path[: len(base)] == base]:
                del settings[path]
            continue
        if task_type in groups:
            raise UserError(f"{dotted(TYPES)}: {show(key)}: is the type of {groups[task_type][-1]}; keep one of them")
        if (*base, *CONTAINER, "image") not in settings:
            containers = (*base, *POD, "containers")
            there = {path[5] for path in settings if path[:5] == containers[:5] and path[5].startswith("containers[")}
            names = [name[len("containers[") : -1] for name in sorted(there)]
            raise UserError(f"{dotted(containers)}: {show(names)}: must hold one named tensorflow, with an image")
        groups[task_type] = base
    if "worker" not in groups and "chief" not in groups:
        raise UserError(f"{dotted(TYPES)}: {show(keys)}: must hold a Worker or a Chief, or nothing trains")
    return {task_type: groups[task_type] for task_type in TASK_TYPES if task_type in groups}, notes
