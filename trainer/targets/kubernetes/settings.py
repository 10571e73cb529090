"""A user's settings of pods: the section `kubernetes` of a spec, and that of one type of tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping

from trainer.job.errors import UserError
from trainer.job.kubernetes import OUR_CONTAINERS, OUR_VOLUMES, Pod
from trainer.job.messages import show
from trainer.job.names import TaskType
from trainer.job.spec import JobSpec
from trainer.targets import container
from trainer.targets.kubernetes import gang
from trainer.targets.kubernetes.merge import mistakes
from trainer.targets.kubernetes.volumes import MOUNT_RULE, SECRET_VOLUME, Part

_DEFAULTS: Part = {
    # `kubectl describe pod` and `trainer status` show why one failed.
    "terminationMessagePolicy": "FallbackToLogsOnError",
    # All that Pod Security "restricted" requires besides the pod's own. A file system that is read-only would break
    # most images.
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
"""Values for a user's containers, where they set nothing else."""


def require(spec: JobSpec, types: Collection[TaskType]) -> None:
    """Checks the names in the settings of all pods.

    Raises:
        UserError: one is missing, or taken; all problems at once.
    """
    if problems := [problem for task_type in types for problem in _problems(spec, task_type)]:
        raise UserError(*dict.fromkeys(problems))


def path(spec: JobSpec, task_type: TaskType, key: str) -> str:
    """Where the spec has a setting of these pods."""
    of_the_type = key in spec.tasks.of(task_type).kubernetes.model_fields_set
    return f"{of_type(spec, task_type)}.{key}" if of_the_type else f"kubernetes.{key}"


def of_type(spec: JobSpec, task_type: TaskType) -> str:
    """The section that has a type's own settings: the workers' for a chief that the spec does not name."""
    return f"tasks.{task_type if spec.tasks.group(task_type) else 'worker'}.kubernetes"


_TYPES = {
    "tolerations": "List[V1Toleration]",
    "affinity": "V1Affinity",
    "env_from": "List[V1EnvFromSource]",
    "volumes": "List[V1Volume]",
    "mounts": "List[V1VolumeMount]",
    "init_containers": "List[V1Container]",
    "sidecars": "List[V1Container]",
}
"""Settings that are as Kubernetes' API has them, with their types there."""
_GUARDED = ("container.apparmor.security.beta.kubernetes.io/", "container.seccomp.security.alpha.kubernetes.io/")
"""Annotations that protect a container begin with one of these."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _problems(spec: JobSpec, task_type: TaskType) -> Iterator[str]:
    pod = spec.pod_of(task_type)
    wrong = [
        f"{place}: {show(value)}: {rule}"
        for key, kind in _TYPES.items()
        if (setting := getattr(pod, key))
        for place, value, rule in mistakes(setting, kind, path(spec, task_type, key))
    ]
    # The names below are texts only if the shapes are right.
    yield from wrong or _wrong_names(spec, task_type, pod)


def _wrong_names(spec: JobSpec, task_type: TaskType, pod: Pod) -> Iterator[str]:
    volumes = [each.get("name") for each in pod.volumes]
    for name in volumes:
        place = f"{path(spec, task_type, 'volumes')}: {name!r}"
        if not _is_name(name):
            yield f"{place}: each needs a name of lower-case letters, digits and '-'"
        elif name in OUR_VOLUMES or str(name).startswith("data-"):
            yield f"{place}: trainer has a volume of that name; choose another"
    for mount in pod.mounts:
        place = f"{path(spec, task_type, 'mounts')}: {mount.get('name')!r}"
        if mount.get("name") not in volumes:
            yield f"{place}: no volume of that name under {path(spec, task_type, 'volumes')}; each mount names one"
        if not isinstance(mount.get("mountPath"), str):
            yield f"{place}: each needs a mountPath"
    seen: set[object] = set()
    for key in ("init_containers", "sidecars"):
        for each in getattr(pod, key):
            place, name = f"{path(spec, task_type, key)}: {each.get('name')!r}", each.get("name")
            if not _is_name(name):
                yield f"{place}: each needs a name of lower-case letters, digits and '-'"
            elif name in OUR_CONTAINERS or name in seen:
                yield f"{place}: the pod has another container of that name; choose another"
            seen.add(name)
            yield from (f"{place}: {problem}" for problem in _wrong_mounts(each, {*volumes, *_of_patches(spec, pod)}))
    for name, value in pod.annotations.items():
        if is_unguarded(name, value):
            fix = "set securityContext in kubernetes.pod, which kubernetes.unsafe must name"
            yield f"{path(spec, task_type, 'annotations')}: {name!r}: changes a protection of a container; {fix}"
    if gang.QUEUE in pod.labels:
        yield f"{path(spec, task_type, 'labels')}: {gang.QUEUE!r}: use kubernetes.queue"


def is_unguarded(annotation: str, value: object) -> bool:
    """Whether an annotation gives up a container's protection."""
    return annotation.startswith(_GUARDED) and value == "unconfined"


def _wrong_mounts(user_container: Mapping[str, object], volumes: Collection[object]) -> Iterator[str]:
    mounts = user_container.get("volumeMounts")
    for name in (each.get("name") for each in mounts) if isinstance(mounts, list) else ():
        if name == SECRET_VOLUME:
            yield f"volumeMounts: {name!r}: {MOUNT_RULE}"
        elif name not in volumes and name not in OUR_VOLUMES and not str(name).startswith("data-"):
            yield f"volumeMounts: {name!r}: no volume has that name; add it to `volumes`"


def _of_patches(spec: JobSpec, pod: Pod) -> Iterator[object]:
    """Names of the volumes in patches, which patch.py checks."""
    for each in (spec.kubernetes.pod, pod.pod):
        section = each.get("spec")
        volumes = section.get("volumes") if isinstance(section, dict) else None
        if isinstance(volumes, list):
            yield from (volume.get("name") for volume in volumes if isinstance(volume, dict))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


_LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""The taints of a node that does not answer."""


def _tolerations(pod: Pod, seconds: int) -> list[dict[str, object]]:
    """The user's, and how long the pod stays on a lost node where the user's do not say it. Otherwise Kubernetes would
    add 300 s."""
    # Other effects do not evict pods.
    theirs = [each.get("key") for each in pod.tolerations if each.get("effect") in (None, "", "NoExecute")]
    if None in theirs:  # it tolerates all taints
        return pod.tolerations
    lost = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in _LOST
        if key not in theirs
    ]
    return [*pod.tolerations, *lost]


def of_pod(pod: Pod, affinity: Part, node_lost_seconds: int) -> Part:
    """Optional keys of a pod's spec, only those that are set."""
    optional = {
        "nodeSelector": pod.node_selector,
        "tolerations": _tolerations(pod, node_lost_seconds),
        "affinity": affinity,
        "priorityClassName": pod.priority_class,
        "serviceAccountName": pod.service_account,
        "imagePullSecrets": [{"name": name} for name in pod.image_pull_secrets],
    }
    return {key: value for key, value in optional.items() if value}


def of_container(spec: JobSpec, pod: Pod) -> Part:
    """Optional keys of the task's container. The image of a program may have any entrypoint."""
    optional = {
        "imagePullPolicy": pod.image_pull_policy,
        "command": [*container.TASK] if spec.program else None,
        "envFrom": pod.env_from,
    }
    return {key: value for key, value in optional.items() if value}


def init_containers(pod: Pod, mapped: Callable[[list[Part]], list[Part]]) -> list[Part]:
    """The containers that run first, then the sidecars, which Kubernetes ends with the task.

    Args:
        mapped: maps mounts to the pod's volumes (volumes.with_theirs).
    """
    made = [{**_DEFAULTS, **_given(each)} for each in pod.init_containers]
    made += [{**_DEFAULTS, **_given(each), "restartPolicy": "Always"} for each in pod.sidecars]
    for each in made:
        if isinstance(mounts := each.get("volumeMounts"), list):
            each["volumeMounts"] = mapped(mounts)
    return made


def _given(user_container: Part) -> Part:
    """A user's container without an empty securityContext, which sets nothing."""
    return {key: value for key, value in user_container.items() if value or key not in _DEFAULTS}
