"""The pods of one type of tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trainer.job.data import CACHE, copies, reads
from trainer.job.names import TF_PORT, TaskType, metrics_port
from trainer.job.spec import JobSpec
from trainer.job.tracker import is_for_tracker
from trainer.targets import container
from trainer.targets.kubernetes import config_map, gang, names, settings, variables, volumes
from trainer.targets.kubernetes.config_map import ConfigMap

RESTARTS = 10
"""New pods per task, counted over all tasks of a Job. Disruptions and ends on SIGTERM do not count where the Job has a
podFailurePolicy.

Not backoffLimitPerIndex: it keeps a failed pod's finalizer until there is a new pod. A namespace that is being deleted
creates none, so it would never be removed (seen on Kubernetes 1.34)."""
MOVES = 30
"""New pods per task of a Job without a podFailurePolicy, where disruptions and ends on SIGTERM count too."""
CHIEF_MOVES = 6
"""New pods of a Job with the chief: after a failure that a restart cannot cure, each new pod fails at once, and
Kubernetes waits 10, 20, 40, ... seconds before it makes one: 10 minutes in all."""


def of_type(
    spec: JobSpec,
    task_type: TaskType,
    pods: Mapping[TaskType, int],
    config: ConfigMap,
    secrets: Mapping[str, Mapping[str, str]],
) -> dict[str, object]:
    """What the template needs of the pods of one type, and of the Job that makes them.

    Args:
        secrets: by variable the references to their values.
    """
    pod, count = spec.pod_of(task_type), pods[task_type]
    # Of a workload only the chief writes and the evaluator reads: others need neither the volume nor its node.
    has_volume = bool(spec.program) or task_type in ("chief", "evaluator")
    # Its volume is free, and its pod is confirmed to have ended, at the same moment: nothing is lost by waiting for it.
    bound = has_volume and spec.kubernetes.volume.access == "ReadWriteOnce"
    chief = task_type == names.chief_type(pods)
    usual = RESTARTS * count if bound else CHIEF_MOVES + MOVES * (count - 1) if chief else MOVES * count
    tensorboard = spec.kubernetes.tensorboard and task_type == "chief"
    track = _track(spec, count, secrets) if spec.tracking and chief else None
    scratch: volumes.Part = {"emptyDir": {"sizeLimit": volumes.SCRATCH_SIZE}}
    runs = {"name": "runs", **(volumes.of_model_dir(spec) if has_volume else scratch)}
    parts: list[tuple[list[volumes.Part], list[volumes.Part]]] = [
        ([runs], [{"name": "runs", "mountPath": f"{container.WORKSPACE}/runs"}]),
        volumes.of_data(spec, runs) if reads(task_type) else ([], []),
        volumes.of_task(spec, task_type),
        volumes.of_secret(spec),
        volumes.of_files(config.name, {name: config_map.key_of(name) for name in config.files}),
        ([{"name": "tensorboard", "emptyDir": {"sizeLimit": volumes.SMALL_SIZE}}] if tensorboard else [], []),
        ([{"name": "track", "emptyDir": {"sizeLimit": volumes.SMALL_SIZE}}] if track else [], []),
    ]
    entries, mapped = volumes.with_theirs([each for part, _ in parts for each in part], pod.volumes)
    mounts = [each for _, part in parts for each in part]
    return {
        "type": task_type,
        "count": count,
        "bound": bound,
        "leads": chief,
        "restarts": gang.restarts(spec, task_type, usual),
        "final": gang.final_codes(spec, task_type, pods),
        "labels": {**names.labels(spec, pod), **names.component(spec, task_type)},
        "annotations": {**_scraped(spec), **pod.annotations, **gang.of_annotations(spec)},
        "job_labels": {**names.labels(spec), **names.component(spec, task_type), **gang.queue_label(spec)},
        "pod": {
            **settings.of_pod(pod, _affinity(spec, task_type, pods), spec.kubernetes.node_lost_seconds),
            **gang.of_pod(spec),
        },
        "image": spec.image_of(task_type),
        "container": settings.of_container(spec, pod),
        "variables": variables.of_task(spec, task_type),
        "init_containers": settings.init_containers(pod, mapped),
        "tensorboard": tensorboard,
        "track": track,
        "resources": _resources(spec, task_type),
        "has_volume": has_volume,
        "checks_policy": not spec.kubernetes.egress and task_type == names.chief_type(pods),
        "cache_is_shared": spec.kubernetes.data_cache is not None,
        "cache": CACHE if copies(spec.data) and reads(task_type) else None,
        "volumes": entries,
        "mounts": volumes.mounts_with_theirs(mounts, mapped(pod.mounts), settings.path(spec, task_type, "mounts")),
    }


def _scraped(spec: JobSpec) -> dict[str, str]:
    """Annotations by which Prometheus finds a pod."""
    if spec.kubernetes.metrics is None or spec.kubernetes.metrics.kind != "annotations":
        return {}
    values = {"scrape": "true", "port": str(metrics_port(TF_PORT)), "path": "/metrics"}
    return {f"prometheus.io/{name}": value for name, value in values.items()}


def _track(spec: JobSpec, count: int, secrets: Mapping[str, Mapping[str, str]]) -> dict[str, object]:
    """What the template needs of `trainer track`. Pods of one type are alike: in the first one it sends."""
    first = ["--index", "$(TASK_INDEX)"] if count > 1 else []
    return {
        "args": ["track", "--keep", *first, container.model_dir(spec)],
        "env": {name: text.replace("$", "$$") for name, text in spec.env.items() if is_for_tracker(name)},
        "secrets": {name: each for name, each in secrets.items() if is_for_tracker(name)},
        "indexed": bool(first),
    }


def tensorboard_image(spec: JobSpec) -> str:
    """`trainer:tensorboard`, from the registry of the tasks' image."""
    folder, slash, _ = spec.container_image.rpartition("/")
    return spec.kubernetes.tensorboard_image or f"{folder}{slash}trainer:tensorboard"


TOPOLOGIES = {
    "host": "kubernetes.io/hostname",
    "zone": "topology.kubernetes.io/zone",
    "region": "topology.kubernetes.io/region",
}


def topology_key(spec: JobSpec) -> str | None:
    """The node label whose values are the domains of kubernetes.topology."""
    given = spec.kubernetes.topology
    return TOPOLOGIES.get(given, given) if given else None


def _affinity(spec: JobSpec, task_type: TaskType, pods: Collection[TaskType]) -> dict[str, object]:
    """The user's affinity, the domain of the job's other pods, and the chief's node for the pods that mount a volume
    which only one node can."""
    affinity, chief = spec.pod_of(task_type).affinity, names.chief_type(pods)
    if key := topology_key(spec):
        term: volumes.Part = {"topologyKey": key, "labelSelector": {"matchLabels": {names.INSTANCE: spec.name}}}
        preferred: volumes.Part = {"weight": 100, "podAffinityTerm": term}
        affinity = _near(affinity, "preferredDuringSchedulingIgnoredDuringExecution", preferred)
    evaluator = task_type == "evaluator" and spec.kubernetes.volume.access == "ReadWriteOnce"
    if task_type != "chief" and (on_one_node(spec) if spec.program else evaluator):
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": names.component(spec, chief)}}
        affinity = _near(affinity, "requiredDuringSchedulingIgnoredDuringExecution", term)
    return affinity


def _near(affinity: volumes.Part, rule: str, term: volumes.Part) -> volumes.Part:
    """The affinity with one more rule for pods."""
    same = affinity.get("podAffinity")
    same = same if isinstance(same, dict) else {}
    return {**affinity, "podAffinity": {**same, rule: [*(same.get(rule) or []), term]}}


def on_one_node(spec: JobSpec) -> bool:
    """Whether all pods need the chief's node, because all of a program mount a claim that only one node can."""
    access = spec.kubernetes.volume.access
    return bool(
        spec.program and volumes.claim(spec) and access == "ReadWriteOnce" and sum(names.counts(spec).values()) > 1
    )


def gpus(spec: JobSpec, task_type: TaskType) -> int:
    return spec.tasks.of(task_type).gpus


def _resources(spec: JobSpec, task_type: TaskType) -> dict[str, dict[str, str]]:
    """Requests and limits: those of the spec, or a small request without a limit."""
    group = spec.tasks.of(task_type)
    limits = {"cpu": f"{group.cpu:g}" if group.cpu else None, "memory": group.memory}
    asked = {key: value for key, value in limits.items() if value}
    gpus = {spec.kubernetes.gpu_resource: str(group.gpus)} if group.gpus else {}
    return {"requests": {"cpu": "250m", "memory": "512Mi", **asked, **gpus}, "limits": {**asked, **gpus}}
