"""Rules for jobs that run a program of the user's own, and for the settings that only they have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainer.job import environment
from trainer.job.fields import Strict
from trainer.job.kubernetes import Source
from trainer.job.names import TASK_TYPES
from trainer.job.rules.problem import Problem
from trainer.job.spec import JobSpec
from trainer.job.strategies import names

OF_WORKLOADS = (
    "workload", "api", "settings", "dataset", "dataset_sha256", "init_from", "keep_best", "devices", "job_name", "tpu",
    "train", "communication", "check_exports", "warm_standby",
)  # fmt: skip
"""Settings of the training that a program does itself."""
OF_PROGRAMS = ("python", "working_dir", "resume", "success")


def problems(spec: JobSpec) -> list[Problem]:
    """Lists every broken rule that concerns `program`."""
    broken = _with_program(spec) if spec.program else _without(spec)
    return [*broken, *_env_problems(spec)]


def _with_program(spec: JobSpec) -> Iterator[Problem]:
    if not spec.traits.trains:
        rule = f"runs no programs; choose {names(lambda other: other.trains)}"
        yield Problem("strategy", spec.strategy, rule, ("program",))
    for key in OF_WORKLOADS:
        if (value := getattr(spec, key)) != type(spec).model_fields[key].get_default(call_default_factory=True):
            yield Problem(
                key, _shown(value), "is for workloads, and `program` decides that itself; remove it", ("program",)
            )
    for task_type in TASK_TYPES:
        group = spec.tasks.group(task_type)
        if group is not None and group.cpu_devices != 1:
            rule = "is for workloads; a program makes its logical devices itself; remove it"
            yield Problem(f"tasks.{task_type}.cpu_devices", group.cpu_devices, rule, ("program",))


def _shown(value: object) -> object:
    """A value as its user wrote it."""
    return value.model_dump(exclude_defaults=True) if isinstance(value, Strict) else value


def _without(spec: JobSpec) -> Iterator[Problem]:
    rule = "is for a `program`; name one, or remove it"
    for key in OF_PROGRAMS:
        if (value := getattr(spec, key)) != type(spec).model_fields[key].default:
            yield Problem(key, value, rule, ("program",))
    for task_type in TASK_TYPES:
        if (group := spec.tasks.group(task_type)) is not None and group.program:
            yield Problem(f"tasks.{task_type}.program", group.program, rule, ("program",))


def sources(spec: JobSpec) -> Iterator[tuple[str, Source]]:
    """The sources of variables, each with its path in the spec."""
    places = [("kubernetes", spec.kubernetes.env)]
    groups = {task_type: group for task_type in TASK_TYPES if (group := spec.tasks.group(task_type)) is not None}
    places += [(f"tasks.{task_type}.kubernetes", group.kubernetes.env) for task_type, group in groups.items()]
    for place, env in places:
        yield from ((f"{place}.env.{name}", value) for name, value in env.items() if isinstance(value, Source))


def _env_problems(spec: JobSpec) -> Iterator[Problem]:
    for path, source in sources(spec):
        if sum(each is not None for each in (source.config_map, source.field, source.resource)) != 1:
            rule = "must name one of config_map, field and resource"
            yield Problem(path, _shown(source), rule)
        elif source.key and not source.config_map:
            yield Problem(f"{path}.key", source.key, "is a key of a ConfigMap; add config_map: NAME")
    places: dict[str, Mapping[str, object]] = {"env": spec.env, "kubernetes.env": spec.kubernetes.env}
    for task_type in TASK_TYPES:
        if (group := spec.tasks.group(task_type)) is not None:
            places[f"tasks.{task_type}.env"] = group.env
            places[f"tasks.{task_type}.kubernetes.env"] = group.kubernetes.env
    for place, variables in places.items():
        for name, value in variables.items():
            # The datasets' folder is the only one of ours that a user may choose.
            ours = name in environment.RESERVED or (name.startswith("TRAINER_") and name != environment.DATA)
            if ours:
                yield Problem(f"{place}.{name}", name, "trainer sets this variable itself; choose another name")
            if not spec.program and environment.BACKEND.get(name, value) != value:
                backend = environment.BACKEND[name]
                yield Problem(
                    f"{place}.{name}", _shown(value), f"trainer trains with Keras' backend {backend}; remove it"
                )
            if name in spec.secrets:
                yield Problem(f"{place}.{name}", name, "is given under secrets too; keep one", ("secrets",))
