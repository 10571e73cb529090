"""Strategic merge patches of pod templates: their fields and types, and how they change a template
(https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainer.job.messages import nearest

MERGED_BY = {
    "containers": "name", "ephemeralContainers": "name", "evictionResponders": "name", "hostAliases": "ip",
    "imagePullSecrets": "name", "initContainers": "name", "resourceClaims": "name", "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey", "volumes": "name", "env": "name", "ports": "containerPort",
    "volumeDevices": "devicePath", "volumeMounts": "mountPath", "ownerReferences": "uid",
}  # fmt: skip
"""The key by which the items of a list are merged, as patchMergeKey in k8s.io/api/core/v1. Other lists are replaced."""
_WHOLE = ("volumes", "resourceClaims")
"""Lists whose items keep only the keys of the patch (retainKeys): a volume has one source."""
PATCH = "$patch"
"""The key of an item of a list that says how it is merged: `$patch: delete` removes it."""
_QUANTITIES = ("limits", "requests", "sizeLimit", "divisor", "overhead")
"""Fields that hold quantities, or mappings of them, which the client's classes have as texts."""
_QUANTITY = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+|[KMGTPE]i|[numkMGTPE]?)")
"""A quantity, as k8s.io/apimachinery/pkg/api/resource/quantity.go reads it."""


def mistakes(patch: object, kind: str, path: str = "") -> Iterator[tuple[str, object, str]]:
    """What Kubernetes' API does not have: (path, value, rule) of each.

    Args:
        kind: a type as the client's classes name it: V1PodTemplateSpec, List[V1Container], Dict[str, str], str.
    """
    if patch is None:
        return  # removes the field
    if kind == "object":  # a number or a text, such as a port
        return
    if of_items := re.fullmatch(r"List\[(.*)\]", kind):
        if not isinstance(patch, list):
            yield path, patch, "must be a list"
            return
        name = path.rpartition(".")[2]
        for index, item in enumerate(patch):
            if item is None:
                yield f"{path}[{index}]", item, "is no item of a list; remove it"
                continue
            key = MERGED_BY.get(name)
            named = item.get(key) if key and isinstance(item, dict) else None
            if key and not isinstance(named, (str, int)):
                yield f"{path}[{index}]", item, f"needs {key}, by which Kubernetes merges {name}"
            else:
                yield from mistakes(item, of_items[1], f"{path}[{index if named is None else named}]")
    elif of_values := re.fullmatch(r"Dict\[str, (.*)\]", kind):
        if not isinstance(patch, dict):
            yield path, patch, "must be a mapping"
            return
        for name, value in patch.items():
            if name.startswith("$"):
                yield f"{path}.{name}", value, "no mapping of names has this; name single ones, null removes one"
            else:
                of_each = "quantity" if path.rpartition(".")[2] in _QUANTITIES else of_values[1]
                yield from mistakes(value, of_each, f"{path}.{name}")
    elif kind == "quantity":
        if isinstance(patch, bool) or not _QUANTITY.fullmatch(str(patch)):
            yield path, patch, "must be a quantity: 500m, 2, 1.5Gi"
    elif kind in _SCALARS:
        expected, words = _SCALARS[kind]
        if not isinstance(patch, expected) or (isinstance(patch, bool) and kind != "bool"):
            yield path, patch, f"must be {words}"
    else:
        yield from _of_model(patch, kind, path)


_SCALARS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "a text"), "int": (int, "a whole number"), "float": ((int, float), "a number"),
    "bool": (bool, "true or false"), "datetime": (str, "a time"),
}  # fmt: skip


def _of_model(patch: object, kind: str, path: str) -> Iterator[tuple[str, object, str]]:
    from kubernetes.client import models  # half a second: only for specs that have a patch

    model = getattr(models, kind)
    fields = {camel: model.openapi_types[name] for name, camel in model.attribute_map.items()}
    if not isinstance(patch, dict):
        yield path, patch, f"must be a mapping of {', '.join(list(fields)[:5])}, ..."
        return
    for name, value in patch.items():
        place = f"{path}.{name}" if path else str(name)
        if name == PATCH:
            in_list = re.search(r"(\w+)\[[^]]*\]$", path)
            if value != "delete" or in_list is None or in_list[1] not in MERGED_BY:
                yield place, value, "must be delete, in an item of a list that Kubernetes merges"
        elif name not in fields:
            yield place, value, f"{kind.removeprefix('V1')} in Kubernetes has no such field{nearest(name, fields)}"
        else:
            one = fields[name] == "str" and name in _QUANTITIES
            yield from mistakes(value, "quantity" if one else fields[name], place)


def merged(old: object, patch: object, name: str = "") -> object:
    """A value with a patch applied; both stay as they are.

    Args:
        name: the field's.
    """
    if isinstance(patch, dict):
        before: Mapping[str, object] = old if isinstance(old, dict) else {}
        result = {key: value for key, value in before.items() if key not in patch}
        changed = {key: merged(before.get(key), value, key) for key, value in patch.items() if value is not None}
        return {key: {**result, **changed}[key] for key in (*before, *patch) if key in result or key in changed}
    if isinstance(patch, list) and (key := MERGED_BY.get(name)):
        return _merged_list(old if isinstance(old, list) else [], patch, key, name in _WHOLE)
    return patch


def _merged_list(old: list[dict[str, object]], patch: list[dict[str, object]], key: str, whole: bool) -> object:
    items = {item[key]: item for item in old}
    for change in patch:
        mine = change[key]
        if change.get(PATCH) == "delete":
            items.pop(mine, None)
            continue
        before = items.get(mine, {})
        kept = {name: value for name, value in before.items() if name in change} if whole else before
        changed = merged(kept, change)
        assert isinstance(changed, dict)
        items[mine] = changed
    return list(items.values())


def values(template: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value of a template with its path, as in `mistakes`."""
    if isinstance(template, dict) and template:
        for name, value in template.items():
            yield from values(value, f"{path}.{name}" if path else name)
    elif isinstance(template, list) and (key := MERGED_BY.get(path.rpartition(".")[2])):
        for item in template:
            yield from values(item, f"{path}[{item[key]}]")
    else:
        yield path, template
