"""Maps the settings of a TFJob's pods to `kubernetes` of a job spec, for all tasks or for each type."""

from __future__ import annotations

from collections.abc import Collection

from trainer.job.kubernetes import OUR_CONTAINERS, OUR_VOLUMES
from trainer.tfjob.manifest import ANNOTATIONS, CONTAINER, LABELS, POD, TYPES, Path, Settings
from trainer.tfjob.queues import queues
from trainer.tfjob.rules import ByType, Groups, Results, shared
from trainer.tfjob.selectors import with_our_labels
from trainer.tfjob.spec import LEFT_OUT, Note, Setting

_KEYS: dict[str, tuple[Path, ...]] = {
    "node_selector": ((*POD, "nodeSelector"),),
    "tolerations": ((*POD, "tolerations"),),
    "affinity": ((*POD, "affinity"),),
    "priority_class": ((*POD, "priorityClassName"),),
    "service_account": ((*POD, "serviceAccountName"), (*POD, "serviceAccount")),
    "image_pull_secrets": ((*POD, "imagePullSecrets"),),
    "image_pull_policy": ((*CONTAINER, "imagePullPolicy"),),
    "env_from": ((*CONTAINER, "envFrom"),),
    "volumes": ((*POD, "volumes"),),
    "mounts": ((*CONTAINER, "volumeMounts"),),
    "init_containers": ((*POD, "initContainers"),),
}
"""The places below a type that each setting of the spec is from; the first is used if several are set."""
_PATCHED = ("dnsConfig", "dnsPolicy", "hostAliases", "preemptionPolicy", "runtimeClassName")
"""Keys of a pod that a spec has only in `kubernetes.pod`."""
_OF_NODES = ("Default",)
"""Values of dnsPolicy with which tasks do not find each other."""
_OUR_LABELS = {f"app.kubernetes.io/{key}" for key in ("name", "instance", "component", "managed-by")}
_PORT = {"name": "tfjob-port", "containerPort": 2222, "protocol": "TCP"}


def pods(settings: Settings, groups: Groups) -> Results:
    """All settings of `kubernetes` but variables."""
    # A TFJob's pods may connect to anything.
    yield Setting(("kubernetes", "egress"), True, (TYPES,))
    yield from _model_dir(settings, groups)
    yield from _priority(settings, groups)
    for name, keys in _KEYS.items():
        by_type: ByType = {}
        for task_type, base in groups.items():
            if place := next((path for key in keys if (path := (*base, *key)) in settings), None):
                value = settings.pop(place)
                if name == "affinity":
                    value, notes = with_our_labels(value)
                    yield from (Note(place, label, about) for label, about in notes.items())
                by_type[task_type] = ((place,), _renamed(name, value))
        yield from shared(by_type, groups, ("kubernetes", name))
    yield from _sidecars(settings, groups)
    yield from _patches(settings, groups)
    yield from queues(settings, groups)
    yield from _labels(settings, groups)
    _ports(settings, groups)


def _renamed(setting: str, value: object) -> object:
    """A list of a pod's spec, as ours has it: names of secrets, and names of volumes and containers that are not
    ours."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return value
    if setting == "image_pull_secrets":
        return [each["name"] if each.keys() == {"name"} else each for each in value]
    if setting in ("volumes", "mounts"):
        return [_other_name(each, OUR_VOLUMES) for each in value]
    if setting in ("init_containers", "sidecars"):
        return [
            {key: _renamed("mounts", each[key]) if key == "volumeMounts" else each[key] for key in each}
            for each in (_other_name(each, OUR_CONTAINERS) for each in value)
        ]
    return value


def _other_name(item: dict[str, object], ours: Collection[str]) -> dict[str, object]:
    """The item with another name, if it has one that only ours may have."""
    name = item.get("name")
    taken = name in ours or (ours is OUR_VOLUMES and isinstance(name, str) and name.startswith("data-"))
    return {**item, "name": f"own-{name}"} if taken else item


def _model_dir(settings: Settings, groups: Groups) -> Results:
    """A claim that every type mounts and one writes to, because all tasks of a program mount model_dir. Without one
    each task has a folder of its own: a new claim that only one node can mount would move all tasks to that node."""
    mounted = [_claims(settings, base) for base in groups.values()]
    written = [name for claims in mounted for name, writes in claims.items() if writes]
    if claim := next((name for name in written if all(name in claims for claims in mounted)), None):
        places = tuple((*base, *POD, "volumes") for base in groups.values())
        yield Setting(("kubernetes", "volume", "claim"), claim, places)
    else:
        yield Setting(("kubernetes", "volume", "empty_dir"), True, (TYPES,))


def _claims(settings: Settings, base: Path) -> dict[str, bool]:
    """The claims that a type mounts, and whether it writes to them."""
    volumes: dict[str, tuple[str, bool]] = {}
    for volume in _items(settings, (*base, *POD, "volumes")):
        source = volume.get("persistentVolumeClaim")
        if isinstance(source, dict) and isinstance(claim := source.get("claimName"), str):
            volumes[str(volume.get("name"))] = (claim, not source.get("readOnly"))
    claims: dict[str, bool] = {}
    for mount in _items(settings, (*base, *CONTAINER, "volumeMounts")):
        if there := volumes.get(str(mount.get("name"))):
            claim, writable = there
            claims[claim] = claims.get(claim, False) or (writable and not mount.get("readOnly"))
    return claims


def _items(settings: Settings, path: Path) -> list[dict[str, object]]:
    value = settings.get(path)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _sidecars(settings: Settings, groups: Groups) -> Results:
    by_type: ByType = {}
    for task_type, base in groups.items():
        others = [path for path in settings if path[:-1] == (*base, *POD) and path[-1].startswith("containers[")]
        named = {path: path[-1].removeprefix("containers[")[:-1] for path in others if "[#" not in path[-1]}
        containers = [{"name": name, **_mapping(settings.pop(path))} for path, name in named.items()]
        if containers:
            by_type[task_type] = (tuple(named), _renamed("sidecars", containers))
    yield from shared(by_type, groups, ("kubernetes", "sidecars"))


def _patches(settings: Settings, groups: Groups) -> Results:
    """Settings that a spec has only as a patch of the pod template; resources but those that a task type has."""
    for key in _PATCHED:
        there = {t: path for t, base in groups.items() if (path := (*base, *POD, key)) in settings}
        alone: ByType = {
            t: ((path,), settings.pop(path)) for t, path in there.items() if settings[path] not in _OF_NODES
        }
        yield from shared(alone, groups, ("kubernetes", "pod", "spec", key))
    by_type: ByType = {}
    for task_type, base in groups.items():
        sections = [(*base, *CONTAINER, "resources", each) for each in ("limits", "requests")]
        places = [
            path for path, value in settings.items() if path[:-1] in sections and isinstance(value, str | int | float)
        ]
        resources: dict[str, dict[str, object]] = {}
        for path in places:
            resources.setdefault(path[-2], {})[path[-1]] = settings.pop(path)
        if resources:
            by_type[task_type] = (tuple(places), [{"name": "task", "resources": resources}])
    yield from shared(by_type, groups, ("kubernetes", "pod", "spec", "containers"))


def _mapping(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def _labels(settings: Settings, groups: Groups) -> Results:
    """Labels of the TFJob, which all objects get, and labels and annotations of the pods."""
    for origin in [path for path in settings if path[-1] in _OUR_LABELS and path[-2] == "labels"]:
        yield Note(origin, settings.pop(origin), f"{LEFT_OUT}trainer sets this label itself")
    every = {path[-1]: settings.pop(path) for path in list(settings) if path[:2] == ("metadata", "labels")}
    for name, value in every.items():
        yield Setting(("kubernetes", "labels", name), value, (("metadata", "labels", name),))
    for key in (LABELS, ANNOTATIONS):
        for name in dict.fromkeys(path[-1] for path in settings if path[3:-1] == key):
            there = {t: path for t, base in groups.items() if (path := (*base, *key, name)) in settings}
            by_type: ByType = {t: ((path,), settings.pop(path)) for t, path in there.items()}
            if alone := key == LABELS and name in every:
                by_type = {t: each for t, each in by_type.items() if each[1] != every[name]}
            yield from shared(by_type, groups, ("kubernetes", key[-1], name), alone)


def _priority(settings: Settings, groups: Groups) -> Results:
    """The priority of a whole job, unless pods have their own."""
    place = ("spec", "runPolicy", "schedulingPolicy", "priorityClass")
    if not any((*base, *POD, "priorityClassName") in settings for base in groups.values()):
        yield Setting(("kubernetes", "priority_class"), settings.pop(place, None), (place,))


def _ports(settings: Settings, groups: Groups) -> None:
    """Removes the operator's port, which every task has here."""
    for base in groups.values():
        place = (*base, *CONTAINER, "ports")
        ports = _items(settings, place)
        others = [each for each in ports if {"protocol": "TCP", **each} != _PORT]
        if ports and not others:
            del settings[place]
        elif others != ports:
            settings[place] = others
