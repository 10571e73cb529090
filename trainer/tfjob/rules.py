"""Maps the settings of a TFJob to those of a job spec: each function removes from `found` what it handles."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator

from trainer.job import environment
from trainer.job.names import TASK_TYPES, TaskType
from trainer.job.strategies import STRATEGIES
from trainer.tfjob.manifest import CONTAINER, POD, TYPES, Found, Path, mapping, show
from trainer.tfjob.spec import Note, Setting

Groups = dict[TaskType, Path]
"""Path of each type of task in the TFJob; the workers first, because their settings apply to all tasks."""
Results = Iterator[Setting | Note]

_FLAGS = {
    **dict.fromkeys(("steps", "train_steps", "max_steps", "training_steps"), "steps"),
    **dict.fromkeys(("epochs", "num_epochs", "train_epochs"), "epochs"),
    "batch_size": "batch_size",
    "global_batch_size": "global_batch_size",
    **dict.fromkeys(("learning_rate", "lr"), "learning_rate"),
}
"""Names of options that many training scripts have, and the setting below `train` of each."""
_FLAG = re.compile(r"--?([A-Za-z][-_A-Za-z0-9]*)(?:=(.*))?", re.DOTALL)
_VOLUMES = {"persistentVolumeClaim": ("claimName", "claim"), "hostPath": ("path", "host_path")}
"""By kind: the key that names the volume, and our setting below `kubernetes.volume`."""
_OUR_VARIABLES = {*environment.RESERVED, environment.JOB, environment.CLUSTER}
_OUR_LABELS = {f"app.kubernetes.io/{key}" for key in ("name", "instance", "component", "managed-by")}
_IMAGE = (
    "has to hold trainer: build it FROM trainer:cpu or trainer:cuda (images/README.md); it trains mnist until "
    "`workload` names your Python file with model() and data(shard)"
)
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def top(found: Found, groups: Groups) -> Results:
    """Name, strategy and image."""
    name, prefix = ("metadata", "name"), ("metadata", "generateName")
    if name not in found and isinstance(text := found.get(prefix), str):
        del found[prefix]
        yield Setting(("name",), text.rstrip("-"), prefix, required=True)
        yield Note(prefix, text, "is the whole name here; jobs that run at the same time need different ones")
    else:
        yield Setting(("name",), found.pop(name, None), name, required=True)
    strategy = _strategy(groups)
    yield Setting(("strategy",), strategy, TYPES, required=True)
    if STRATEGIES[strategy].coordinated and "chief" in groups:
        replicas = (*groups["chief"], "replicas")
        yield Note(
            replicas, found.get(replicas, 1), "only hands out the work here; for as many that train, add a worker"
        )
    elif STRATEGIES[strategy].coordinated:
        there = [base[-1] for base in groups.values()]
        yield Note(TYPES, there, "worker 0 was the chief; here a chief is added, and every worker only trains")
    yield from _common(found, groups, (*CONTAINER, "image"), ("image",), _IMAGE)


def _strategy(groups: Groups) -> str:
    return "parameter_server" if "ps" in groups else "multi_worker_mirrored"


def tasks(found: Found, groups: Groups, resource: str) -> Results:
    """The number of tasks of each type, and their resources.

    Args:
        resource: the name of the resource that `gpus` counts.
    """
    gpus = {task_type: _resource(found, base, resource) for task_type, base in groups.items()}
    row, trainers = STRATEGIES[_strategy(groups)], _number(gpus["worker"][1] or 0)
    for task_type in TASK_TYPES:
        if task_type not in groups:
            continue
        base = groups[task_type]
        replicas = (*base, "replicas")
        yield Setting(("tasks", task_type, "replicas"), found.pop(replicas, 1), replicas, required=True)
        origin, cpu = _resource(found, base, "cpu")
        yield Setting(("tasks", task_type, "cpu"), _cores(cpu), origin)
        origin, memory = _resource(found, base, "memory")
        yield Setting(("tasks", task_type, "memory"), str(memory) if type(memory) is int else memory, origin)
        origin, asked = gpus[task_type]
        count = _number(asked or 0)
        if task_type == "worker" and row.one_gpu and isinstance(count, int) and count > 1:
            yield Note(origin, asked, "is 1 here: a ps-worker trains on at most one GPU; use more workers")
            count = 1
        if task_type == "chief" and row.collective and count != trainers:
            yield Note(origin, asked, f"is {show(trainers)} here, as for the workers: the chief trains too")
            count = trainers
        yield Setting(("tasks", task_type, "gpus"), count, origin, required=bool(count))


def train(found: Found, base: Path) -> Results:
    """Training settings from known options of the command. The command itself stays in `found`, to be reported whole.

    Args:
        base: of the workers.
    """
    options: dict[str, tuple[Path, str]] = {}
    for key in ("command", "args"):
        parts = found.get((*base, *CONTAINER, key))
        words = [word for part in parts for word in str(part).split()] if isinstance(parts, list) else []
        for word, following in itertools.pairwise([*words, ""]):
            match = _FLAG.fullmatch(word)
            if match and (target := _FLAGS.get(match[1].replace("-", "_"))):
                origin = (*base, *CONTAINER, f"{key}[{word.partition('=')[0]}]")
                options[target] = (origin, following if match[2] is None else match[2])
    for target in dict.fromkeys(_FLAGS.values()):
        if target in options:
            origin, text = options[target]
            value = _number(text)
            yield Setting(("train", target), value, origin, (Note(origin, value, f"is train.{target} in the spec"),))


def kubernetes(found: Found, groups: Groups, resource: str) -> Results:
    """Settings of the spec's section `kubernetes`, in its order.

    Args:
        resource: the name of the resource that `gpus` counts.
    """
    yield from _volume(found, groups)
    for key, name in (
        ("nodeSelector", "node_selector"),
        ("tolerations", "tolerations"),
        ("affinity", "affinity"),
        ("priorityClassName", "priority_class"),
        ("imagePullSecrets", "image_pull_secrets"),
    ):
        yield from _common(found, groups, (*POD, key), ("kubernetes", name))
    yield from _environment(found, groups)
    yield from _secrets(found, groups)
    queue = found.pop(("metadata", "labels", _QUEUE_LABEL), None)
    for origin in [path for path in found if path[:2] == ("metadata", "labels")]:
        value = found.pop(origin)
        if origin[2] in _OUR_LABELS:
            yield Note(origin, value, "trainer sets this label itself")
        else:
            yield Setting(("kubernetes", "labels", origin[2]), value, origin)
    yield Setting(("kubernetes", "gpu_resource"), resource, TYPES)
    yield Setting(("kubernetes", "queue"), queue, ("metadata", "labels", _QUEUE_LABEL))
    for key, name in (("suspend", "suspend"), ("ttlSecondsAfterFinished", "ttl_seconds")):
        # The first releases of v1 had it without runPolicy.
        place = ("spec", "runPolicy", key) if ("spec", "runPolicy", key) in found else ("spec", key)
        yield Setting(("kubernetes", name), found.pop(place, None), place)


def _volume(found: Found, groups: Groups) -> Results:
    """The first writable claim or folder; the chief's if it has one, because the chief writes the model."""
    taken: Setting | None = None
    notes: list[Note] = []
    for base in [groups[each] for each in ("chief", "worker", "evaluator", "ps") if each in groups]:
        container = (*base, *CONTAINER)
        for mount in [path for path in found if path[:-1] == container and path[-1].startswith("volumeMounts[")]:
            here = None if mapping(found[mount], mount).get("readOnly") else _written(found, base, mount)
            taken = taken or here
            if here is not None and taken is not None and here[:2] == taken[:2]:
                notes.append(Note(mount, found.pop(mount), "holds model_dir here, below /workspace/runs"))
                *place, key = here.origin
                volume = mapping(found.pop(tuple(place)), tuple(place))
                found |= {(*place, rest): each for rest, each in volume.items() if rest not in (key, "readOnly")}
    if taken:
        yield taken._replace(notes=tuple(notes))


def _written(found: Found, base: Path, mount: Path) -> Setting | None:
    """The claim or folder behind a mount; None for another kind of volume or a read-only one."""
    for kind, (key, name) in _VOLUMES.items():
        origin = (*base, *POD, mount[-1].replace("volumeMounts", "volumes", 1), kind)
        volume = found.get(origin)
        if isinstance(volume, dict) and volume.get(key) is not None and not volume.get("readOnly"):
            return Setting(("kubernetes", "volume", name), volume[key], (*origin, key))
    return None


def _environment(found: Found, groups: Groups) -> Results:
    named = re.compile(r"env\[([^#].*)\]", re.DOTALL)
    for key in dict.fromkeys(path[3:] for path in found if path[3:-2] == CONTAINER and path[-1] == "value"):
        if not (match := named.fullmatch(key[-2])):
            continue
        there = [path for base in groups.values() if (path := (*base, *key)) in found]
        if match[1] in _OUR_VARIABLES:
            yield from (Note(path, found.pop(path), "trainer writes this variable itself") for path in there)
        elif any("$(" in str(found[path]) for path in there):
            yield from (Note(path, found.pop(path), "no variable can refer to another") for path in there)
        else:
            yield from _common(found, groups, key, ("kubernetes", "env", match[1]))


def _secrets(found: Found, groups: Groups) -> Results:
    """Variables whose values come from Secrets."""
    named = re.compile(r"env\[([^#].*)\]", re.DOTALL)
    for key in dict.fromkeys(path[3:] for path in found if path[3:-2] == CONTAINER and path[-1] == "valueFrom"):
        there = [path for base in groups.values() if (path := (*base, *key)) in found]
        references = [_reference(found[path]) for path in there]
        if (match := named.fullmatch(key[-2])) and all(references):
            found |= dict(zip(there, references, strict=True))
            yield from _common(found, groups, key, ("secrets", match[1]))


def _reference(source: object) -> dict[str, object] | None:
    """`valueFrom` as one of the spec's secrets, if it is a key of a Secret and nothing else."""
    reference = source.get("secretKeyRef") if isinstance(source, dict) and len(source) == 1 else None
    if not isinstance(reference, dict) or reference.keys() != {"name", "key"}:
        return None
    return {"secret": reference["name"], "key": reference["key"]}


def _common(found: Found, groups: Groups, key: Path, path: Path, note: str = "") -> Results:
    """A setting that a spec has once for all tasks: the workers' value, with notes about tasks that differ.

    Args:
        key: below each type.
        path: in the spec.
        note: what the user should know about the value.
    """
    origins = [(*base, *key) for base in groups.values()]
    value, *others = [found.pop(origin, None) for origin in origins]
    same = f"all tasks get the same here, that of {groups['worker'][-1]}: {show(value)}"
    notes = [Note(at, other, same) for at, other in zip(origins[1:], others, strict=True) if other != value]
    if note:
        notes.append(Note(origins[0], value, note))
    if key[-1] == "imagePullSecrets" and isinstance(value, list):
        value = [each["name"] if isinstance(each, dict) and each.keys() == {"name"} else each for each in value]
    yield Setting(path, value, origins[0], tuple(notes))


def gpu_resource(found: Found) -> str:
    """The resource that the spec's `gpus` counts."""
    places = [(*CONTAINER, "resources", each) for each in ("limits", "requests")]
    asked = [path[-1] for path in found if path[3:-1] in places and path[-1].endswith("/gpu")]
    return asked[0] if asked else "nvidia.com/gpu"


def _resource(found: Found, base: Path, name: str) -> tuple[Path, object]:
    """Path and value of the container's limit, or of its request if there is no limit. If they differ, the request
    stays in `found`."""
    limit, request = [(*base, *CONTAINER, "resources", each, name) for each in ("limits", "requests")]
    if limit not in found and request in found:
        return request, found.pop(request)
    value = found.pop(limit, None)
    if found.get(request) == value:
        found.pop(request, None)
    return limit, value


def _cores(value: object) -> object:
    match = re.fullmatch(r"([0-9]{1,9})m", value) if isinstance(value, str) else None
    return int(match[1]) / 1000 if match else _number(value)


def _number(value: object) -> object:
    """Text that holds a number as that number; any other value unchanged."""
    if isinstance(value, str):
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                return kind(value)
    return value
