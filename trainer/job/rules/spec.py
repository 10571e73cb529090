"""Rules that concern several fields of a spec."""

from __future__ import annotations

import functools

from trainer.job import environment
from trainer.job.data import OTHER_SOURCES, READABLE, SOURCES, Data, scheme, variable
from trainer.job.derived import batch_rule, rate_rule
from trainer.job.fields import Strict
from trainer.job.names import DNS_LABEL, MAX_DNS_LABEL, container_address, host_name
from trainer.job.rules import communication, program, tracking
from trainer.job.rules.problem import Problem
from trainer.job.spec import JobSpec
from trainer.job.strategies import names

LONGEST_VARIABLE = 128 * 1024
"""Maximum bytes of an environment variable with its name: Linux' MAX_ARG_STRLEN, with 4 KiB pages (execve(2))."""
_POD_SUFFIX = len("-abcde")
"""Characters that Kubernetes adds to a pod's name: JobSet's webhook refuses more than 63 (jobset_webhook.go, v0.12)."""
_CHANGES = 4096
"""Bytes that are reserved for what targets change in the spec that tasks get, such as paths."""


def problems(spec: JobSpec) -> list[Problem]:
    """Lists every broken rule."""
    first = (_name_problems, _volume_problems, _task_problems, _device_problems, _train_problems, _api_problems)
    others = (_data_problems, _code_problems, _init_problems, _best_problems, _secret_problems)
    elsewhere = (communication.problems, program.problems, tracking.problems)
    broken = [problem for look in (*first, *others, *elsewhere) for problem in look(spec)]
    return broken or _size_problems(spec)


def _size_problems(spec: JobSpec) -> list[Problem]:
    size = len(spec.model_dump_json(exclude_defaults=True).encode()) + _CHANGES
    if size <= LONGEST_VARIABLE:
        return []
    parts = spec.model_dump(mode="json", exclude_defaults=True)
    largest = max(parts, key=lambda key: len(str(parts[key])))
    rule = (
        f"the spec would take about {size:,} bytes, Linux allows {LONGEST_VARIABLE:,} for the environment variable by "
        "which tasks get it; move scripts and data into files, into the image, or into a ConfigMap of your own"
    )
    return [Problem(largest, parts[largest], rule)]


def _name_problems(spec: JobSpec) -> list[Problem]:
    if not DNS_LABEL.fullmatch(spec.name):
        rule = "must be lower-case letters, digits and '-', from a letter to a letter or digit (RFC 1035)"
        return [Problem("name", spec.name, rule)]
    counts = spec.tasks.counts()
    jobs = {t: spec.kubernetes.job_of(t) for t in counts}
    longest = max((host_name(spec.name, jobs[t], n - 1) for t, n in counts.items()), key=len)
    allowed, whose = MAX_DNS_LABEL, "DNS allows"
    if spec.kubernetes.gang == "jobset":
        allowed, whose = MAX_DNS_LABEL - _POD_SUFFIX, "a JobSet, which counts the suffix of its pods, allows"
    if (over := len(longest) - allowed) > 0:
        rule = f"{longest} would have {len(longest)} characters, {whose} {allowed}; shorten it by {over}"
        return [Problem("name", spec.name, rule, ("kubernetes.gang",))]
    # In JSON each address adds two quotes, a comma and a space; 200 bytes cover the types' names and the task.
    size = sum(len(container_address(spec.name, jobs[t], i)) + 4 for t, n in counts.items() for i in range(n)) + 200
    if size > LONGEST_VARIABLE:
        rule = (
            f"TF_CONFIG would take about {size:,} bytes, Linux allows {LONGEST_VARIABLE:,} for an environment "
            "variable; use fewer tasks, or a shorter name"
        )
        return [Problem("tasks", f"{sum(counts.values()):,} tasks", rule)]
    return []


def _task_problems(spec: JobSpec) -> list[Problem]:
    problems: list[Problem] = []
    row, counts = spec.traits, spec.tasks.counts()
    for single in ("chief", "evaluator"):
        if counts.get(single, 1) > 1:
            rule = f"there is at most one {single}; set 1"
            problems.append(Problem(f"tasks.{single}.replicas", counts[single], rule))
    for server in row.servers:
        if server not in counts and not (spec.program and server == "worker" and "chief" in counts):
            rule = f"{spec.strategy} needs at least one {server}; add {server}: 1"
            problems.append(Problem(f"tasks.{server}", None, rule))
    if "ps" in counts and "ps" not in row.servers:
        why = " (TensorFlow would wait for it for ever)" if row.collective else ""
        rule = f"{spec.strategy} has no ps{why}; remove tasks.ps"
        problems.append(Problem("tasks.ps", counts["ps"], rule, ("strategy",)))
    if "evaluator" in counts and not row.trains:
        rule = f"a {spec.strategy} job has no checkpoints to evaluate; remove tasks.evaluator"
        problems.append(Problem("tasks.evaluator", counts["evaluator"], rule, ("strategy",)))
    if spec.job_name == "chief":
        problems.append(Problem("job_name", spec.job_name, "is the client's own name; choose another"))
    if row.one_task:
        several = names(lambda other: other.collective)
        rule = f"{spec.strategy} trains in one task, on its devices; for several tasks use {several}"
        if counts.get("worker", 0) > 1:
            problems.append(Problem("tasks.worker.replicas", counts["worker"], rule, ("strategy",)))
        if "chief" in counts:
            problems.append(Problem("tasks.chief", counts["chief"], rule, ("strategy",)))
    return problems


def _device_problems(spec: JobSpec) -> list[Problem]:
    problems: list[Problem] = []
    if spec.program:
        return []
    row, worker, chief = spec.traits, spec.tasks.worker, spec.tasks.chief
    if row.one_gpu and worker.gpus > 1:
        rule = "a ps-worker trains on at most one GPU; use more workers"
        problems.append(Problem("tasks.worker.gpus", worker.gpus, rule))
    if row.collective and chief is not None:
        for key in ("gpus", "cpu_devices"):
            mine, theirs = getattr(chief, key), getattr(worker, key)
            if mine != theirs:
                rule = f"the chief trains too: give it the workers' {theirs}"
                problems.append(Problem(f"tasks.chief.{key}", mine, rule, ("strategy", "tasks.worker")))
    if spec.devices is not None:
        problems += _chosen_device_problems(spec, spec.devices)
    return problems


def _chosen_device_problems(spec: JobSpec, devices: list[str]) -> list[Problem]:
    needs = ("strategy", "tasks.worker")
    if not spec.traits.chooses_devices:
        rule = f"is for {names(lambda other: other.chooses_devices)}; the others use all devices of a task"
        return [Problem("devices", devices, rule, needs)]
    worker = spec.tasks.worker
    there = [f"GPU:{i}" for i in range(worker.gpus)] + [f"CPU:{i}" for i in range(worker.cpu_devices)]
    if unknown := [device for device in devices if device not in there]:
        rule = f"{', '.join(unknown)}: the task has {', '.join(there)}; more with tasks.worker.gpus or .cpu_devices"
        return [Problem("devices", devices, rule, needs)]
    if len(set(devices)) < len(devices) or len({device[:3] for device in devices}) > 1:
        return [Problem("devices", devices, "must be different devices of one kind")]
    if spec.traits.replicas == "one" and len(devices) > 1:
        return [Problem("devices", devices, f"{spec.strategy} computes on one; name one, or use mirrored", needs)]
    return []


def _train_problems(spec: JobSpec) -> list[Problem]:
    problems: list[Problem] = []
    train, counts = spec.train, spec.tasks.counts()
    for first, second in (("steps", "epochs"), ("batch_size", "global_batch_size")):
        if getattr(train, first) is not None and (value := getattr(train, second)) is not None:
            problems.append(Problem(f"train.{second}", value, f"give {first} or {second}, not both"))
    needs = ("strategy", "tasks.chief", "tasks.worker", "devices", "tpu")
    if rule := batch_rule(spec, counts):
        problems.append(Problem("train.global_batch_size", train.global_batch_size, rule, needs))
    elif rule := rate_rule(spec, counts):
        sizes = ("train.batch_size", "train.global_batch_size")
        problems.append(Problem("train.learning_rates", train.learning_rates, rule, (*needs, *sizes)))
    if train.learning_rates is not None and train.learning_rate_scaling != "none":
        rule = "learning_rates already gives the rate; remove it"
        problems.append(Problem("train.learning_rate_scaling", train.learning_rate_scaling, rule))
    return problems


def _api_problems(spec: JobSpec) -> list[Problem]:
    problems: list[Problem] = []
    if not spec.traits.trains and spec.api != type(spec).model_fields["api"].default:
        rule = f"a {spec.strategy} job trains nothing by an API; remove it, or choose another strategy"
        problems.append(Problem("api", spec.api, rule, ("strategy",)))
    for path, rule in spec.api_traits.refuses.items():
        *section, key = path.split(".")
        part: Strict = functools.reduce(getattr, section, spec)
        if (value := getattr(part, key)) != type(part).model_fields[key].default:
            problems.append(Problem(path, value, rule, ("api",)))
    return problems


def _volume_problems(spec: JobSpec) -> list[Problem]:
    volume = spec.kubernetes.volume
    if volume.empty_dir and volume.access != "ReadWriteOnce":
        rule = "empty_dir is storage of one pod; remove one of them"
        return [Problem("kubernetes.volume.access", volume.access, rule)]
    if (volume.claim is not None) + (volume.host_path is not None) + volume.empty_dir <= 1:
        return []
    rule = "give at most one of claim, host_path and empty_dir"
    return [Problem("kubernetes.volume", volume.model_dump(exclude_defaults=True), rule)]


def _data_problems(spec: JobSpec) -> list[Problem]:
    problems: list[Problem] = []
    for name, each in spec.data.items():
        path = f"data.{name}"
        if variable(name) == environment.DATA:
            problems.append(Problem(path, name, f"{environment.DATA} is another variable; choose another name"))
        problems += _data_path_problems(path, each)
        if each.copy and each.path and scheme(each.path):
            problems.append(
                Problem(f"{path}.copy", each.copy, "is for folders; TensorFlow reads gs:// itself; remove it")
            )
        if (volume := each.kubernetes) is None:
            continue
        if each.copy and volume.host_path:
            problems.append(Problem(f"{path}.copy", each.copy, "a host_path is on the node already; remove it"))
        given = [kind for kind in SOURCES if getattr(volume, kind) is not None]
        if len(given) != 1:
            rule = f"must name one source: {', '.join(SOURCES)}"
            problems.append(Problem(f"{path}.kubernetes", volume.model_dump(exclude_defaults=True), rule))
        elif volume.volume is not None and (rule := _volume_rule(volume.volume)):
            problems.append(Problem(f"{path}.kubernetes.volume", volume.volume, rule))
        for kind, needed in (("nfs", ("server", "path")), ("csi", ("driver",))):
            source = getattr(volume, kind)
            if source is not None and not all(isinstance(source.get(key), str) for key in needed):
                problems.append(Problem(f"{path}.kubernetes.{kind}", source, f"must have {' and '.join(needed)}"))
        if volume.sub_path is not None and (volume.sub_path.startswith("/") or ".." in volume.sub_path.split("/")):
            rule = "must be a folder in the volume, without a leading / and without .."
            problems.append(Problem(f"{path}.kubernetes.sub_path", volume.sub_path, rule))
    return problems


def _volume_rule(volume: dict[str, object]) -> str:
    settings = {"persistentVolumeClaim": "claim", "hostPath": "host_path", "nfs": "nfs", "csi": "csi"}
    if setting := next((settings[kind] for kind in volume if kind in settings), None):
        return f"has a setting of its own: {setting}, in place of volume"
    if len(volume) == 1 and next(iter(volume)) in OTHER_SOURCES and isinstance(next(iter(volume.values())), dict):
        return ""
    return f"must be one source of a pod's volume with its settings, KIND: {{...}}; KIND is {', '.join(OTHER_SOURCES)}"


def _code_problems(spec: JobSpec) -> list[Problem]:
    if not spec.code or spec.program or spec.workload.endswith(".py"):
        return []
    rule = "is for a workload file of your own, or a program; set workload: FILE.py"
    return [Problem("code", spec.code, rule, ("workload", "program"))]


def _init_problems(spec: JobSpec) -> list[Problem]:
    begin = spec.init_from
    if begin is None:
        return []
    if not spec.traits.trains:
        return [Problem("init_from", begin.path, f"a {spec.strategy} job trains nothing; remove it", ("strategy",))]
    if begin.data is None:
        return []
    if begin.data not in spec.data:
        known = f"`data` has {', '.join(spec.data) or 'no names'}"
        return [Problem("init_from.data", begin.data, f"{known}; add it there", ("data",))]
    if (place := spec.data[begin.data].path) and scheme(place):
        rule = "weights are read from folders, not over the network; copy them to one"
        return [Problem("init_from.data", begin.data, rule, ("data",))]
    if begin.path.startswith("/") or ".." in begin.path.split("/"):
        return [Problem("init_from.path", begin.path, f"must be in the folder of data.{begin.data}")]
    return []


def _best_problems(spec: JobSpec) -> list[Problem]:
    keep = spec.keep_best
    if keep is None:
        return []
    if not spec.traits.trains:
        return [
            Problem("keep_best", keep.metric, f"a {spec.strategy} job has no checkpoints; remove it", ("strategy",))
        ]
    if keep.direction is None:
        return [
            Problem(
                "keep_best.mode",
                keep.mode,
                f"{keep.metric!r} does not show what is better; set min or max",
            )
        ]
    if not keep.of_validation and spec.tasks.evaluator is None:
        rule = (
            f"is a figure of the test split, which an evaluator computes: add tasks.evaluator, or use val_{keep.metric}"
        )
        return [Problem("keep_best.metric", keep.metric, rule, ("tasks.evaluator",))]
    return []


def _data_path_problems(path: str, each: Data) -> list[Problem]:
    if each.path is None and each.kubernetes is None:
        return [Problem(path, None, "has neither path, a folder, nor kubernetes, a volume")]
    if each.path is None or (kind := scheme(each.path)) in (None, *READABLE):
        return []
    rule = (
        f"TensorFlow 2.21 reads folders and gs://, not {kind}://; copy the data to a folder, or mount the bucket on "
        "Kubernetes: kubernetes: {csi: {driver: NAME}} or a claim"
    )
    return [Problem(f"{path}.path", each.path, rule)]


def _secret_problems(spec: JobSpec) -> list[Problem]:
    problems: list[Problem] = []
    for name, source in spec.secrets.items():
        path = f"secrets.{name}"
        if name in environment.RESERVED or name.startswith("TRAINER_"):
            problems.append(Problem(path, name, "trainer sets this variable itself; choose another name"))
        if source.key is not None and source.secret is None:
            problems.append(
                Problem(f"{path}.key", source.key, "needs the name of the Secret that has this key; add secret: NAME")
            )
    return problems
