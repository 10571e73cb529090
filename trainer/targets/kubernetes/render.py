"""Renders a spec as Kubernetes manifests.

One Indexed batch/v1 Job per task type, so that a thousand workers are not a thousand objects. The chief's Job shows the
outcome: it completes or fails as the training does.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from trainer.job import code, pod_security, workload_file
from trainer.job import secret as job_secret
from trainer.job.cluster import tasks_of
from trainer.job.data import CACHE, copies, reads
from trainer.job.errors import Exit, UserError
from trainer.job.kubernetes import Pod
from trainer.job.names import TF_PORT, TaskType, control_port, secret_name
from trainer.job.spec import JobSpec
from trainer.targets import container
from trainer.targets.container import STOP_SECONDS, files_of, job_of, modules_of
from trainer.targets.kubernetes import settings, volumes
from trainer.targets.kubernetes.objects import Manifest

RESTARTS = 10
"""New pods per task, counted over all tasks of a Job. Disruptions and ends on SIGTERM do not count.

Not backoffLimitPerIndex: it keeps a failed pod's finalizer until there is a new pod. A namespace that is being deleted
creates none, so it would never be removed (seen on Kubernetes 1.34)."""
LARGEST_CONFIG_MAP = 1024 * 1024
"""Bytes of a ConfigMap's data (MaxSecretSize in Kubernetes' pkg/apis/core/types.go)."""

# https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
INSTANCE, COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"

_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def render(spec: JobSpec, command: str) -> str:
    """The manifests of a job, for `kubectl apply`.

    Args:
        command: the command that writes them, for the first line.

    Raises:
        UserError: Kubernetes would refuse it; the message names the value, the limit and the fix.
    """
    environment = container.templates()
    # JSON is YAML on one line, with all special characters escaped.
    environment.filters["json"] = json.dumps
    environment.filters["config_key"] = config_key
    return environment.get_template("kubernetes/kubernetes.yaml.j2").render(command=command, **_values(spec))


SECRET_KEY = "secret"  # noqa: S105 (a name)


def secret(spec: JobSpec) -> Manifest:
    """A new Secret for the tasks' reports, as a manifest. Manifest files, which users keep, do not contain it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(spec.name), "labels": _labels(spec)},
        "stringData": {SECRET_KEY: job_secret.new()},
    }


def counts(spec: JobSpec) -> dict[TaskType, int]:
    """Pods of each type.

    If the spec has no chief, worker 0 is named chief: it needs a separate Job, because it alone has the volume and its
    end is the job's. Both train alike. A program, which reads TF_CONFIG itself, has the tasks of the spec.
    """
    asked = spec.tasks.counts()
    if "chief" not in asked and not spec.program:
        asked = {"chief": 1, **asked, "worker": asked["worker"] - 1}
    return {task_type: count for task_type, count in asked.items() if count}


CHIEFS: tuple[TaskType, ...] = ("chief", "worker")
"""The first of these types that a job has is that of the chief, whose Job shows the outcome."""


def chief_type(types: Collection[str]) -> TaskType:
    return next(each for each in CHIEFS if each in types)


def on_one_node(spec: JobSpec) -> bool:
    """Whether all pods need the chief's node, because all of a program mount a claim that only one node can."""
    access = spec.kubernetes.volume.access
    return bool(spec.program and volumes.claim(spec) and access == "ReadWriteOnce" and sum(counts(spec).values()) > 1)


def warnings(spec: JobSpec) -> list[str]:
    """What may surprise on Kubernetes."""
    if not on_one_node(spec):
        return []
    return [
        "kubernetes.volume.access: ReadWriteOnce: every pod of a program mounts model_dir, so all run on one node; for "
        "several set ReadWriteMany, if the storage class has it, or name a claim"
    ]


def _values(spec: JobSpec) -> dict[str, object]:
    given, pods = spec.kubernetes, counts(spec)
    if spec.model_dir is not None:
        raise UserError(f"model_dir: {spec.model_dir!r}: is a folder of this machine; kubernetes.volume says where")
    if given.tensorboard and "chief" not in pods:
        raise UserError("kubernetes.tensorboard: True: is in the chief's pod, and this program has no chief; remove it")
    settings.require(spec, pods)
    if not given.egress:
        egress = "set kubernetes.egress: true, or name a proxy that another NetworkPolicy allows"
        variables = (spec.pod_of(task_type).env.keys() | spec.env_of(task_type) for task_type in pods)
        container.require_way_out(
            spec, {*set.intersection(*map(set, variables)), *spec.secrets}, f"{egress}: env: {{HTTPS_PROXY: URL}}"
        )
    labels = _labels(spec)
    config = _config(spec, pods)
    digest = hashlib.sha256(json.dumps(config).encode()).hexdigest()[:8]
    name = f"{spec.name}-{digest}"
    return {
        "name": spec.name,
        "pod_security": pod_security.level(spec),
        "labels": labels,
        "selector": {key: labels[key] for key in ("app.kubernetes.io/name", INSTANCE)},
        # A new name for new contents: a pod never starts with a different spec than its Job's.
        "config": {"name": name, **config},
        "secret": {"name": secret_name(spec.name), "key": SECRET_KEY},
        "claim": volumes.claim(spec),
        "host_path": (given.volume.host_path or "").replace("$", "$$"),
        "ports": {"tensorflow": TF_PORT, "control": control_port(TF_PORT)},
        # NCCL takes any port, and a program may.
        "any_port": bool(spec.program) or any(_gpus(spec, task_type) for task_type in pods),
        "egress": given.egress,
        "code": {"archive": f"{container.WORKSPACE}/{code.ARCHIVE}"} if spec.code else None,
        "tensorboard": _tensorboard_image(spec),
        "suspend": given.suspend or given.queue is not None,
        "ttl_seconds": given.ttl_seconds,
        "grace_seconds": math.ceil(spec.deadlines.stop) + STOP_SECONDS,
        "stopped": int(Exit.STOPPED),
        "final": sorted(int(code) for code in Exit if code is not Exit.OK and not code.retryable),
        "variables": _variables(spec),
        "jobs": [_job(spec, task_type, pods, {file: config_key(file) for file in config["files"]}, name)
                 for task_type in pods],
    }  # fmt: skip


def _variables(spec: JobSpec) -> dict[str, dict[str, str]]:
    """A reference to a key of a Secret for each of the spec's secrets.

    Raises:
        UserError: one names no Secret.
    """
    problems = [
        f"secrets.{name}: names no Secret; on Kubernetes the value comes from one: {{secret: NAME, key: KEY}}"
        for name, source in spec.secrets.items()
        if source.secret is None
    ]
    if problems:
        raise UserError(*problems)
    return {name: {"name": source.secret or "", "key": source.key or name} for name, source in spec.secrets.items()}


def _labels(spec: JobSpec, pod: Pod | None = None) -> dict[str, str]:
    return {
        **(pod or spec.kubernetes).labels,
        "app.kubernetes.io/name": "trainer",
        INSTANCE: spec.name,
        MANAGED_BY: "trainer",
    }


def _job(
    spec: JobSpec, task_type: TaskType, pods: Mapping[TaskType, int], files: Mapping[str, str], config: str
) -> dict[str, object]:
    """
    Args:
        files: keys in the ConfigMap `config` of the files that tasks have in their working directory.
    """
    pod, count = spec.pod_of(task_type), pods[task_type]
    queue = {"kueue.x-k8s.io/queue-name": spec.kubernetes.queue} if spec.kubernetes.queue else {}
    # Of a workload only the chief writes and the evaluator reads: others need neither the volume nor its node.
    has_volume = bool(spec.program) or task_type in ("chief", "evaluator")
    tensorboard = spec.kubernetes.tensorboard and task_type == "chief"
    runs = {"name": "runs", **(volumes.of_model_dir(spec) if has_volume else {"emptyDir": {}})}
    parts: list[tuple[list[volumes.Part], list[volumes.Part]]] = [
        ([runs], [{"name": "runs", "mountPath": f"{container.WORKSPACE}/runs"}]),
        volumes.of_data(spec, runs) if reads(task_type) else ([], []),
        volumes.of_task(spec, task_type),
        volumes.of_files(config, files),
        ([{"name": "tensorboard", "emptyDir": {}}] if tensorboard else [], []),
    ]
    entries, mapped = volumes.with_theirs([each for part, _ in parts for each in part], pod.volumes)
    mounts = [each for _, part in parts for each in part]
    return {
        "type": task_type,
        "count": count,
        "restarts": RESTARTS * count,
        "labels": {**_labels(spec, pod), **_component(spec, task_type)},
        "annotations": pod.annotations,
        "job_labels": {**_labels(spec), **_component(spec, task_type), **queue},
        "pod": settings.of_pod(pod, _affinity(spec, task_type, pods)),
        "image": spec.image_of(task_type),
        "container": settings.of_container(spec, pod),
        "environment": settings.variables(spec, task_type),
        "init_containers": settings.init_containers(pod, mapped),
        "tensorboard": tensorboard,
        "resources": _resources(spec, task_type),
        "has_volume": has_volume,
        "cache": CACHE if copies(spec.data) and reads(task_type) else None,
        "volumes": entries,
        "mounts": volumes.mounts_with_theirs(mounts, mapped(pod.mounts), settings.path(spec, task_type, "mounts")),
    }


def _tensorboard_image(spec: JobSpec) -> str:
    """`trainer:tensorboard`, from the registry of the tasks' image."""
    folder, slash, _ = spec.container_image.rpartition("/")
    return spec.kubernetes.tensorboard_image or f"{folder}{slash}trainer:tensorboard"


def _affinity(spec: JobSpec, task_type: TaskType, pods: Collection[TaskType]) -> dict[str, object]:
    """The user's affinity, and the chief's node for the pods that mount a volume which only one node can."""
    theirs, chief = spec.pod_of(task_type).affinity, chief_type(pods)
    if task_type == "chief" or not (on_one_node(spec) if spec.program else task_type == "evaluator"):
        return theirs
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": _component(spec, chief)}}
    same = theirs.get("podAffinity")
    same = same if isinstance(same, dict) else {}
    return {**theirs, "podAffinity": {**same, rule: [*(same.get(rule) or []), term]}}


def _component(spec: JobSpec, component: str) -> dict[str, str]:
    return {INSTANCE: spec.name, COMPONENT: component}


def _config(spec: JobSpec, pods: dict[TaskType, int]) -> dict[str, dict[str, str]]:
    """The data that all pods share: the spec, the cluster, and files that the spec names."""
    files: dict[str, bytes] = {}
    user_files = [(key, Path(path).name, Path(path)) for key, path in files_of(spec).items()]
    for name, module in modules_of(spec).items():
        within = [(file.relative_to(module).as_posix(), file) for file in workload_file.files_of(module)]
        user_files += [("workload", name if rest == "." else f"{name}/{rest}", file) for rest, file in within]
    for key, name, path in user_files:
        if not _CONFIG_KEY.fullmatch(config_key(name)):
            raise UserError(f"{key}: {str(path)!r}: a ConfigMap allows letters, digits, '-', '_' and '.' in file names")
        try:
            files[name] = path.read_bytes()
        except OSError as error:
            raise UserError(f"{key}: {str(path)!r}: cannot be read: {error.strerror}") from None
    if spec.code:
        files[code.ARCHIVE] = code.pack(spec)
    cluster = json.dumps(tasks_of(spec, counts=pods)[0].cluster)
    job = job_of(spec)
    _require_fits(spec, cluster, job, files)
    return {
        "data": {"cluster": cluster, "job": job},
        "files": {name: base64.b64encode(content).decode() for name, content in files.items()},
    }


def config_key(name: str) -> str:
    """Of a file in the ConfigMap: its keys have no slashes."""
    return name.replace("/", ".")


def _require_fits(spec: JobSpec, cluster: str, job: str, files: dict[str, bytes]) -> None:
    if (size := len(cluster) + len(job.encode()) + sum(map(len, files.values()))) > LARGEST_CONFIG_MAP:
        if code.ARCHIVE in files:
            raise UserError(
                f"code: packed, the job's ConfigMap would have {size:,} bytes, Kubernetes allows "
                f"{LARGEST_CONFIG_MAP:,}; {code.largest(code.files(spec))}; put data into a volume (data:), or build "
                "the files into an image (image:)"
            )
        names = ", ".join(files)
        raise UserError(
            f"{names}: the job's ConfigMap would have {size:,} bytes, Kubernetes allows {LARGEST_CONFIG_MAP:,}; "
            "bake the data into an image of your own (image:), and name a dataset of your workload's instead"
        )


def _gpus(spec: JobSpec, task_type: TaskType) -> int:
    group = spec.tasks.of(task_type)
    return group.gpus


def _resources(spec: JobSpec, task_type: TaskType) -> dict[str, dict[str, str]]:
    """Requests and limits: those of the spec, or a small request without a limit."""
    group = spec.tasks.of(task_type)
    limits = {"cpu": f"{group.cpu:g}" if group.cpu else None, "memory": group.memory}
    asked = {key: value for key, value in limits.items() if value}
    gpus = {spec.kubernetes.gpu_resource: str(group.gpus)} if group.gpus else {}
    return {"requests": {"cpu": "250m", "memory": "512Mi", **asked, **gpus}, "limits": {**asked, **gpus}}
