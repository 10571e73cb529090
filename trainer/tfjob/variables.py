"""Maps the environment variables of a TFJob's containers to `env`, `secrets` and `kubernetes.env` of a job spec."""

from __future__ import annotations

import re

from trainer.job import environment
from trainer.tfjob.manifest import CONTAINER, Path, Settings
from trainer.tfjob.rules import ByType, Groups, Results, as_text, main_of, shared
from trainer.tfjob.selectors import is_operators
from trainer.tfjob.spec import LEFT_OUT, Note, Setting


def variables(settings: Settings, groups: Groups) -> Results:
    """All variables whose names and sources a spec can have."""
    apart: list[str] = []
    for part in dict.fromkeys(path[-1] for path in settings if path[3:-1] == CONTAINER and path[-1].startswith("env[")):
        name = part.removeprefix("env[")[:-1]
        if name.startswith("#"):
            continue
        by_type: dict[Path, ByType] = {}
        for task_type, base in groups.items():
            origin = (*base, *CONTAINER, part)
            if name in environment.RESERVED or (name.startswith("TRAINER_") and name != environment.DATA):
                if origin in settings:
                    yield Note(origin, settings.pop(origin), f"{LEFT_OUT}trainer sets this variable itself")
            elif made := _variable(settings.get(origin)):
                section, value = made
                by_type.setdefault(section, {})[task_type] = ((origin,), value)
                yield from _changes(origin, settings.pop(origin), value)
        for section, values in by_type.items():
            if section == ("secrets",):
                yield from _secret(values, groups, name)
                continue
            # A type's own variables come after those of all: what refers to one has to follow it.
            refers = any(f"$({other})" in str(value) for _, value in values.values() for other in apart)
            converted = [*shared(values, groups, (*section, name), alone=refers)]
            apart += [name] if len(groups) > 1 and all(setting.path[0] == "tasks" for setting in converted) else []
            yield from converted


def _variable(item: object) -> tuple[Path, object] | None:
    """The section of the spec, and the value there; None for what it cannot have."""
    if not isinstance(item, dict):
        return None
    item = {key: value for key, value in item.items() if value is not None}
    if not item.keys() - {"value"}:
        value = item.get("value", "")
        return (("env",), as_text(value)) if isinstance(value, str | int | float) else None
    source = item.get("valueFrom")
    if item.keys() != {"valueFrom"} or not isinstance(source, dict) or len(source) != 1:
        return None
    ((kind, reference),) = source.items()
    if not isinstance(reference, dict):
        return None
    keys = reference.keys() - {"optional"}
    if kind == "secretKeyRef" and keys == {"name", "key"}:
        return ("secrets",), {"secret": reference["name"], "key": reference["key"]}
    if kind == "configMapKeyRef" and keys == {"name", "key"}:
        return ("kubernetes", "env"), {"config_map": reference["name"], "key": reference["key"]}
    if kind == "fieldRef" and {**reference, "apiVersion": "v1"}.keys() == {"apiVersion", "fieldPath"}:
        path, version = reference["fieldPath"], reference.get("apiVersion", "v1")
        label = re.fullmatch(r"metadata\.labels\['(.*)'\]", str(path))
        # Pods do not have the operator's labels here.
        known = version == "v1" and not (label and is_operators(label[1]))
        return (("kubernetes", "env"), {"field": path}) if known else None
    if kind == "resourceFieldRef" and reference.keys() == {"resource"}:
        return ("kubernetes", "env"), {"resource": reference["resource"]}
    return None


def _changes(origin: Path, item: object, value: object) -> Results:
    assert isinstance(item, dict)
    if "value" in item and isinstance(item["value"], int | float):
        yield Note(origin, item["value"], f"is the text {value!r} here")
    if any(isinstance(each, dict) and each.get("optional") for each in (item.get("valueFrom") or {}).values()):
        yield Note(origin, item, "is not optional here: it has to be there")


def _secret(by_type: ByType, groups: Groups, name: str) -> Results:
    """A spec has secrets once for all tasks: the main type's."""
    origins, value = by_type.get(main_of(groups)) or next(iter(by_type.values()))
    for places, other in by_type.values():
        if other != value:
            yield Note(places[0], other, f"{LEFT_OUT}all tasks get the same secret here")
    notes = (Note(origins[0], value, "all tasks get it here"),) if len(by_type) < len(groups) else ()
    yield Setting(("secrets", name), value, origins, notes)
