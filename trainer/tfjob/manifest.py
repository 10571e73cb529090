"""Flattens a Kubeflow TFJob to settings by path. Settings that no rule removes are reported at the end."""

from __future__ import annotations

import json

import yaml

from trainer.job.errors import UserError
from trainer.job.yaml_text import BoundedLoader, not_yaml

Path = tuple[str, ...]
Settings = dict[Path, object]

TYPES: Path = ("spec", "tfReplicaSpecs")
POD: Path = ("template", "spec")
"""Where a type has its pods' settings."""
CONTAINER: Path = (*POD, "containers[tensorflow]")
"""The container that trains: the operator finds it by this name."""
LABELS: Path = ("template", "metadata", "labels")
ANNOTATIONS: Path = ("template", "metadata", "annotations")

# Mappings that are opened; any other value is one setting, however deep it is.
_OPEN = {"metadata", "labels", "annotations", "spec", "runPolicy", "schedulingPolicy", "tfReplicaSpecs", "template"}
_OPEN |= {"containers[tensorflow]", "resources", "limits", "requests"}
_NAMED = {"containers", "env"}
"""Keys of lists whose items have names; each item is a setting."""
FREE = {"labels", "annotations", "limits", "requests"}
"""Mappings with user-defined keys."""


def read(text: str, source: str) -> list[object]:
    """The documents of a file of manifests as JSON values, as Kubernetes reads them: all keys are text.

    Raises:
        UserError: the text is not YAML, or has a value that JSON lacks.
    """
    try:
        documents = list(yaml.load_all(text, Loader=BoundedLoader))
        return [json.loads(json.dumps(each, default=str, allow_nan=False)) for each in documents]
    except Exception as error:
        raise not_yaml(error, source) from None


def flat(value: object, path: Path = ()) -> Settings:
    """All settings of a TFJob. A null counts as absent, as in Kubernetes.

    Raises:
        UserError: a value is not the mapping or list that it must be.
    """
    settings: Settings = {}
    for key, each in mapping(value, path).items():
        inner = (*path, key)
        if each is None:
            continue
        if path[-1:] and path[-1] in FREE:
            settings[inner] = each
        elif key in _NAMED:
            settings |= _named(each, inner)
        elif key in _OPEN or path == TYPES:
            settings |= flat(each, inner)
        else:
            settings[inner] = each
    return settings


def mapping(value: object, path: Path) -> dict[str, object]:
    """A value that must be a mapping; null counts as an empty one.

    Raises:
        UserError: the value is something else.
    """
    if value is not None and not isinstance(value, dict):
        raise UserError(f"{dotted(path)}: {show(value)}: must be a mapping")
    return value or {}


def dotted(path: Path) -> str:
    """`spec.tfReplicaSpecs.Worker.replicas`."""
    return ".".join(part if part and part.isprintable() else repr(part) for part in path) or "top level"


def show(value: object) -> str:
    """A value on one line, shortened to 200 characters."""
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _named(items: object, path: Path) -> Settings:
    """Items as `env[NAME]`, or as `env[#0]` where the name is missing or taken."""
    if not isinstance(items, list):
        raise UserError(f"{dotted(path)}: {show(items)}: must be a list")
    settings: Settings = {}
    names: set[str] = set()
    for index, item in enumerate(items):
        name = mapping(item, (*path[:-1], f"{path[-1]}[#{index}]")).get("name")
        unique = isinstance(name, str) and name not in names
        rest = {key: each for key, each in item.items() if not (unique and key == "name")} if item else {}
        part = str(name) if unique else f"#{index}"
        names.add(part)
        inner = (*path[:-1], f"{path[-1]}[{part}]")
        settings |= flat(rest, inner) if inner[-1] in _OPEN else {inner: rest}
    return settings
