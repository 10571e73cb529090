"""Maps the settings of a TFJob to those of a job spec: each function removes from `settings` what it handles."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator

from trainer.job.accelerators import counts_devices
from trainer.job.errors import UserError
from trainer.job.names import TaskType
from trainer.job.spec import Deadlines
from trainer.tfjob.manifest import CONTAINER, POD, TYPES, Path, Settings, dotted, show
from trainer.tfjob.spec import LEFT_OUT, Note, Setting, lines

Groups = dict[TaskType, Path]
"""Path of each type of task in the TFJob, in the order of TASK_TYPES."""
Results = Iterator[Setting | Note]
ByType = dict[TaskType, tuple[tuple[Path, ...], object]]
"""One setting of each type: its places in the TFJob, and the value for the spec."""

_IMAGE = 'has to hold trainer: build one FROM it (docs/programs.md, "Your image")'
_NO_ENTRYPOINT = "is the program here, as in an image without ENTRYPOINT; if it has one, give it with --entrypoint"
_NO_COMMAND = (
    "a program needs its words; those of the image's ENTRYPOINT are not known here, `docker image inspect IMAGE` shows "
    "them; give them, as in --entrypoint 'python /opt/train.py'"
)
_NEVER = "is Never where a TFJob leaves it out, so resume is none; remove that if the program finds its checkpoint"
"""The rule of training-operator, pkg/apis/kubeflow.org/v1/tensorflow_defaults.go."""
_UNLIMITED = (
    "is no limit where a TFJob leaves it out; here max_restarts in a row without progress end the job: a step that the "
    "chief reports or prints, or a file below TRAINER_MODEL_DIR"
)
_GRACE_SECONDS = 30
_GRACE = (
    f"is {_GRACE_SECONDS} where a pod leaves it out, and deadlines.stop is {Deadlines().stop:g} here; set that if a "
    "program saves for longer"
)
_RESTARTED = "exit codes 1 to 127 end the job here; a task that a signal ended is restarted"


def main_of(groups: Groups) -> TaskType:
    """The type whose settings are those of the job, where a spec has them once."""
    return "worker" if "worker" in groups else "chief"


def top(settings: Settings, groups: Groups) -> Results:
    """Name and strategy."""
    name, prefix = ("metadata", "name"), ("metadata", "generateName")
    if name not in settings and isinstance(text := settings.get(prefix), str):
        del settings[prefix]
        yield Setting(("name",), text.rstrip("-"), (prefix,), required=True)
        yield Note(prefix, text, "is the whole name here; jobs that run at the same time need different ones")
    else:
        yield Setting(("name",), settings.pop(name, None), (name,), required=True)
    # A program decides how it trains: the strategy says which types of tasks there are, and what the loss of one means.
    strategy = "parameter_server" if "ps" in groups else "multi_worker_mirrored"
    yield Setting(("strategy",), strategy, (TYPES,), required=True)
    if "chief" in groups and (key := groups["chief"][-1]).lower() == "master":
        yield Note(groups["chief"], key, "is a chief, also in TF_CONFIG")


def programs(settings: Settings, groups: Groups, entrypoint: list[str]) -> Results:
    """The words that each type runs, and where: the image has the code.

    Args:
        entrypoint: words of the image's ENTRYPOINT, for types without a command.

    Raises:
        UserError: a type has none.
    """
    by_type: ByType = {}
    unknown: list[Note] = []
    for task_type, base in groups.items():
        places = ((*base, *CONTAINER, "command"), (*base, *CONTAINER, "args"))
        command, args = [_words(settings, place) for place in places]
        for place, words in zip(places, (command, args), strict=True):
            yield from (
                Note(place, word, f"is a text here: {as_text(word)!r}") for word in words if not isinstance(word, str)
            )
        if not command and not entrypoint and args and not as_text(args[0]).startswith("-"):
            yield Note(places[1], args, _NO_ENTRYPOINT)
        elif not command:
            unknown.append(Note(places[1] if args else places[0], args or None, _NO_COMMAND))
        by_type[task_type] = (places, [*map(as_text, command or entrypoint), *map(as_text, args)])
    if unknown and not entrypoint:
        raise UserError(*lines(unknown))
    if entrypoint and not unknown:
        raise UserError(f"--entrypoint: {show(entrypoint)}: every container has a command; leave it out")
    yield from _with_exceptions(by_type, groups, "program", required=True)
    yield Setting(("code",), [], (TYPES,), required=True)
    yield from _of_all(settings, groups, (*CONTAINER, "workingDir"), ("working_dir",))


def _words(settings: Settings, path: Path) -> list[object]:
    value = settings.pop(path, [])
    if not isinstance(value, list) or not all(isinstance(each, str | int | float) for each in value):
        raise UserError(f"{dotted(path)}: {show(value)}: must be a list of texts")
    return value


def as_text(value: object) -> str:
    """A text of YAML, or a number or boolean as YAML has it."""
    return value if isinstance(value, str) else json.dumps(value)


def tasks(settings: Settings, groups: Groups, resource: str) -> Results:
    """The number of tasks of each type, and their resources and images.

    Args:
        resource: the name of the resource that `gpus` counts.
    """
    needed = ("spec", "runPolicy", "schedulingPolicy", "minAvailable")
    if settings.get(needed) == sum(_count(settings, base) for base in groups.values()):
        del settings[needed]  # as it is here
    for task_type, base in groups.items():
        replicas = (*base, "replicas")
        yield Setting(("tasks", task_type, "replicas"), settings.pop(replicas, 1), (replicas,), required=True)
        for name in ("cpu", "memory"):
            origin, amount = _limit(settings, base, name)  # a request without a limit stays one: see _patches
            value = _cores(amount) if name == "cpu" else str(amount) if type(amount) is int else amount
            yield Setting(("tasks", task_type, name), value, (origin,))
        origin, asked = _limit(settings, base, resource)
        count = _number(asked or 0)
        yield Setting(("tasks", task_type, "gpus"), count, (origin,), required=bool(count))
    yield Setting(("kubernetes", "gpu_resource"), resource, (TYPES,))
    images: ByType = {t: ((at := (*base, *CONTAINER, "image"),), settings.pop(at)) for t, base in groups.items()}
    yield from (Note(at, image, _IMAGE) for (at,), image in images.values())
    yield from _with_exceptions(images, groups, "image")


def _count(settings: Settings, base: Path) -> int:
    count = settings.get((*base, "replicas"), 1)
    return count if isinstance(count, int) else 0


def run(settings: Settings, groups: Groups) -> Results:
    """How long the job runs, and what follows when a task ends."""
    # The first releases of v1 had these without runPolicy.
    sections = (("spec",), ("spec", "runPolicy"), ("spec", "runPolicy", "schedulingPolicy"))
    places = {path[-1]: path for path in settings if path[:-1] in sections}
    for key, setting in (
        ("activeDeadlineSeconds", ("deadlines", "job")),
        ("backoffLimit", ("max_restarts",)),
        ("scheduleTimeoutSeconds", ("deadlines", "start")),
        ("suspend", ("kubernetes", "suspend")),
        ("ttlSecondsAfterFinished", ("kubernetes", "ttl_seconds")),
    ):
        if key in places:
            yield Setting(setting, settings.pop(places[key]), (places[key],))
    if settings.get(success := places.get("successPolicy", ())) == "AllWorkers":
        del settings[success]
        yield Setting(("success",), "all_workers", (success,))
    # What is so here in any case.
    for key, values in (
        ("successPolicy", ("", "Default")),
        ("cleanPodPolicy", ("Running",)),
        ("enableDynamicWorker", (False,)),
    ):
        if settings.get(place := places.get(key, ())) in values:
            del settings[place]
    if settings.get(clean := places.get("cleanPodPolicy", ())) == "None":
        yield Note(clean, settings.pop(clean), "the other tasks end with the chief here; finished pods stay")
    yield from _restarts(settings, groups, limited="backoffLimit" in places)
    yield from _grace(settings, groups)


def _restarts(settings: Settings, groups: Groups, limited: bool) -> Results:
    paths = [(*base, "restartPolicy") for base in groups.values()]
    policies = {path: settings[path] for path in paths if path in settings}
    if {str(settings.get(path, "Never")) for path in paths} == {"Never"}:
        notes = tuple(Note(path, None, _NEVER) for path in paths[:1] if not policies)
        yield Setting(("resume",), "none", tuple(policies) or tuple(paths[:1]), notes)
    elif not limited:
        yield Note(("spec", "runPolicy", "backoffLimit"), None, _UNLIMITED)
    for path, value in policies.items():
        if value in ("Never", "OnFailure", "Always", "ExitCode"):
            del settings[path]
        if value in ("OnFailure", "Always"):
            yield Note(path, value, _RESTARTED)
        elif value == "Never" and len({*map(str, policies.values())}) > 1:
            yield Note(path, value, f"{LEFT_OUT}resume is for all tasks, and other types are restarted")


def _grace(settings: Settings, groups: Groups) -> Results:
    """Like a pod's period, deadlines.stop is the program's own time: a pod gets some seconds more."""
    paths = [(*base, *POD, "terminationGracePeriodSeconds") for base in groups.values()]
    given = {path: int(str(settings.pop(path))) for path in paths if type(settings.get(path)) is int}
    if not given:
        yield from (Note(path, None, _GRACE) for path in paths if path not in settings)
        return
    longest = max(given.get(path, _GRACE_SECONDS) for path in paths)
    yield Setting(("deadlines", "stop"), longest, tuple(given))
    other = f"is {longest} here, as for all tasks"
    yield from (Note(path, given.get(path), other) for path in paths if given.get(path, _GRACE_SECONDS) != longest)


def shared(by_type: ByType, groups: Groups, path: Path, alone: bool = False) -> Iterator[Setting]:
    """A setting that a spec may have for the job and for a type: once, if all types have the same.

    Args:
        alone: in each type in any case.
    """
    values = [value for _, value in by_type.values()]
    if not alone and len(by_type) == len(groups) and all(value == values[0] for value in values):
        yield Setting(path, values[0], tuple(origin for origins, _ in by_type.values() for origin in origins))
    else:
        for task_type, (origins, value) in by_type.items():
            yield Setting(("tasks", task_type, *path), value, origins)


def _with_exceptions(by_type: ByType, groups: Groups, key: str, required: bool = False) -> Results:
    """A setting of the job that types replace: that of the main type, and those that differ."""
    origins, main = by_type[main_of(groups)]
    yield Setting((key,), main, origins, required=required)
    for task_type, (places, value) in by_type.items():
        if value != main:
            yield Setting(("tasks", task_type, key), value, places, required=required)


def _of_all(settings: Settings, groups: Groups, key: Path, path: Path) -> Results:
    """A setting that a spec has once for all tasks: the main type's, with notes about types that differ."""
    origins = {task_type: (*base, *key) for task_type, base in groups.items()}
    values = {task_type: settings.pop(origin, None) for task_type, origin in origins.items()}
    main = main_of(groups)
    same = f"{LEFT_OUT}all tasks have that of {groups[main][-1]}: {show(values[main])}"
    notes = [Note(origins[t], value, same) for t, value in values.items() if value != values[main]]
    yield Setting(path, values[main], (origins[main],), tuple(notes))


def gpu_resource(settings: Settings) -> str:
    """The resource that the spec's `gpus` counts."""
    places = [(*CONTAINER, "resources", each) for each in ("limits", "requests")]
    asked = [path[-1] for path in settings if path[3:-1] in places and counts_devices(path[-1])]
    whole = [each for each in asked if each.endswith("/gpu")]
    return [*whole, *asked, "nvidia.com/gpu"][0]


def _limit(settings: Settings, base: Path, name: str) -> tuple[Path, object]:
    """Path and value of the container's limit. A request that differs stays in `settings`."""
    limit, request = [(*base, *CONTAINER, "resources", each, name) for each in ("limits", "requests")]
    value = settings.pop(limit, None)
    if value is not None and settings.get(request) == value:
        settings.pop(request, None)
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
