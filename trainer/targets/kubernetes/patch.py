"""`kubernetes.pod`: the user's patches of the pod template, and what they may not change."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import yaml

from trainer.job.errors import UserError
from trainer.job.kubernetes import LABEL_KEY, LABEL_VALUE, OUR_VOLUMES
from trainer.job.messages import show
from trainer.job.names import TaskType
from trainer.job.spec import JobSpec
from trainer.targets.kubernetes import gang, settings, volumes, yaml_text
from trainer.targets.kubernetes.merge import PATCH, merged, mistakes, values
from trainer.targets.kubernetes.objects import Manifest

_TASK = "spec.containers[task]"
_NAME = "tasks find each other by this name; remove it"
_JOBS = "the Job's controller sets this label; remove it"
_OURS = {
    "metadata.labels.app.kubernetes.io": "trainer finds the pods by this label; remove it",
    "metadata.labels.batch.kubernetes.io": _JOBS,
    "metadata.labels.controller-uid": _JOBS,
    "metadata.labels.job-name": _JOBS,
    "metadata.labels.jobset.sigs.k8s.io": _JOBS,
    f"metadata.labels.{gang.QUEUE}": "use kubernetes.queue",
    "spec.nodeName": "passes the scheduler over; use kubernetes.node_selector",
    "spec.subdomain": _NAME,
    "spec.hostname": _NAME,
    "spec.hostnameOverride": _NAME,
    "spec.setHostnameAsFQDN": _NAME,
    "spec.restartPolicy": "the Job replaces pods by their exit codes, which needs Never; remove it",
    "spec.schedulingGroup": "use kubernetes.gang",
    "spec.activeDeadlineSeconds": "use deadlines.job",
    "spec.terminationGracePeriodSeconds": "use deadlines.stop",
    "spec.nodeSelector": "use kubernetes.node_selector",
    "spec.tolerations": "use kubernetes.tolerations",
    "spec.affinity": "use kubernetes.affinity",
    "spec.priorityClassName": "use kubernetes.priority_class",
    "spec.serviceAccountName": "use kubernetes.service_account",
    "spec.serviceAccount": "use kubernetes.service_account",
    "spec.imagePullSecrets": "use kubernetes.image_pull_secrets",
    "spec.ephemeralContainers": "use kubectl debug, once the pod runs",
    f"{_TASK}.{PATCH}": "is the task itself; remove it",
    f"{_TASK}.image": "use image",
    f"{_TASK}.imagePullPolicy": "use kubernetes.image_pull_policy",
    f"{_TASK}.command": "use program",
    f"{_TASK}.args": "use program",
    f"{_TASK}.workingDir": "use working_dir",
    f"{_TASK}.env": "use env or kubernetes.env",
    f"{_TASK}.envFrom": "use kubernetes.env_from",
    f"{_TASK}.volumeMounts": "use kubernetes.mounts",
    f"{_TASK}.ports": "only the job's own tasks may connect; remove it",
    f"{_TASK}.restartPolicy": "the Job replaces the whole pod; remove it",
}
"""Paths that a patch may not name, with what to set in their place."""
_SIZED = ("tmp", "shm", "cache")
"""Our volumes that a patch may change: no task depends on their source."""
_OF_GANGS = ("spec.schedulerName", f"metadata.annotations.{gang.GROUP}")
"""Paths that belong to a gang, where there is one."""

_BOOLEANS = {
    "spec.hostNetwork": False, "spec.hostPID": False, "spec.hostIPC": False, "spec.shareProcessNamespace": False,
    "spec.automountServiceAccountToken": True,
}  # fmt: skip
"""Protections of a pod, with Kubernetes' default: true gives them up."""
_CONTAINER = r"spec\.(containers|initContainers)\[[^]]*\]"
_GUARDED = re.compile(
    r"spec\.securityContext\.(?!(fsGroupChangePolicy|supplementalGroups|supplementalGroupsPolicy)$)"
    rf"|{_CONTAINER}\.securityContext\.|{_CONTAINER}\.ports\[[^]]*\]\.hostPort$"
    r"|spec\.volumes\[[^]]*\]\.hostPath\.path$"
)
"""Protections of a pod: any change gives them up."""
_SOURCES = re.compile(r"spec\.volumes\[[^]]*\]\.projected\.sources$")


def of(spec: JobSpec, task_type: TaskType) -> dict[str, object]:
    """The patches of a type's pods in their order, by their places in the spec."""
    both = {
        "kubernetes.pod": spec.kubernetes.pod,
        f"{settings.of_type(spec, task_type)}.pod": spec.tasks.of(task_type).kubernetes.pod,
    }
    return {place: patch for place, patch in both.items() if patch}


def require(spec: JobSpec, types: Collection[TaskType]) -> None:
    """Checks the patches of all pods.

    Raises:
        UserError: Kubernetes has no such field, or the patch may not name it; all problems at once.
    """
    patches = {place: patch for task_type in types for place, patch in of(spec, task_type).items()}
    if mistakes := [problem for place, patch in patches.items() for problem in _problems(place, patch)]:
        raise UserError(*mistakes)
    named = {path for patch in patches.values() for path, _ in values(patch)}
    unused = [
        f"kubernetes.unsafe: {path!r}: no patch in kubernetes.pod has this path; remove it"
        for path in spec.kubernetes.unsafe
        if not any(_within(path, each) or _within(each, path) for each in named)
    ]
    if unused:
        raise UserError(*unused)


def _problems(place: str, patch: object) -> Iterator[str]:
    wrong = [f"{place}.{path}: {show(value)}: {rule}" for path, value, rule in mistakes(patch, "V1PodTemplateSpec")]
    yield from wrong or _refused(place, patch)


def _refused(place: str, patch: object) -> Iterator[str]:
    for path, value in values(patch):
        removed = value is None
        rule = next(
            (way for ours, way in _OURS.items() if _within(path, ours) or (removed and _within(ours, path))), None
        )
        if volume := re.match(r"spec\.volumes\[([^]]*)\]", path):
            name = volume[1]
            if name not in _SIZED and (name in OUR_VOLUMES or name.startswith("data-")):
                rule = "trainer has a volume of that name; choose another"
        elif path.endswith("].name") and value == volumes.SECRET_VOLUME:
            rule = volumes.MOUNT_RULE
        elif label := re.match(r"metadata\.labels\.(.*)", path):
            valid = re.fullmatch(LABEL_KEY, label[1]) and re.fullmatch(LABEL_VALUE, str(value or ""))
            rule = rule if valid else "is no label of Kubernetes"
        elif settings.is_unguarded(path.removeprefix("metadata.annotations."), value):
            rule = "changes a protection of a container; set its securityContext, which kubernetes.unsafe must name"
        elif (path, value) == ("spec.dnsPolicy", "Default"):
            rule = "tasks find each other by the DNS of the cluster, which the nodes' does not know; remove it"
        elif container := re.match(r"spec\.containers\[([^]]*)\]", path):
            rule = "use kubernetes.sidecars" if container[1] != "task" else rule
        elif path.startswith("metadata.") and not re.match(r"metadata\.(labels|annotations)", path):
            rule = "the Job gives pods their metadata, besides labels and annotations; remove it"
        elif removed and path in ("spec.volumes", "metadata.labels", "spec.containers", "spec"):
            rule = "removes what the tasks need; name single items"
        if rule:
            yield f"{place}.{path}: {show(value)}: {rule}"


def _within(path: str, outer: str) -> bool:
    return path == outer or path.startswith((f"{outer}.", f"{outer}[", f"{outer}/"))


def patched(spec: JobSpec, task_type: TaskType, text: str) -> str:
    """The template of a type's pods, in YAML, with the patches applied.

    Raises:
        UserError: a patch gives up a protection that `kubernetes.unsafe` does not name, or adds a container.
    """
    if not (patches := of(spec, task_type)):
        return text
    before = after = yaml.safe_load(text)
    for patch in patches.values():
        after = merged(after, patch)
    _resolve_peers(after)
    place = list(patches)[-1]
    if found := list(_given_up(spec, before, after)):
        raise UserError(*(f"{place}: {problem}" for problem in found))
    header = f"# Changed by {' and '.join(patches)} of the job spec, so the comments of other manifests are left out.\n"
    return header + yaml_text.block(after)


def _resolve_peers(template: Manifest) -> None:
    """Sets dnsPolicy for pods on the node's network: Kubernetes would use the node's DNS, which knows no tasks."""
    if template["spec"].get("hostNetwork"):
        template["spec"].setdefault("dnsPolicy", "ClusterFirstWithHostNet")


def _given_up(spec: JobSpec, before: Manifest, after: Manifest) -> Iterator[str]:
    """What the patches take from a template."""
    was, now = dict(values(before)), dict(values(after))
    for path in _weakened(was, now):
        if path not in spec.kubernetes.unsafe:
            yield (
                f"{path}: {show(now.get(path))}: gives up a protection of the pods, {show(was.get(path))} without the "
                f"patch; if the job needs that, set kubernetes.unsafe: [{path}]"
            )
    for path in _OF_GANGS:
        if path in was and now.get(path) != was[path]:
            yield f"{path}: {show(now.get(path))}: kubernetes.gang needs {show(was[path])}; remove it"
    for name in sorted(_containers(after) - _containers(before)):
        yield f"spec.initContainers[{name}]: use kubernetes.init_containers"
    there = {each["name"] for each in after["spec"]["volumes"]}
    for path, volume in now.items():
        if re.search(r"\.volumeMounts\[[^]]*\]\.name$", path) and volume not in there:
            yield f"spec.volumes[{volume}]: {path.rpartition('.')[0]} mounts it; keep it"


def _weakened(was: dict[str, object], now: dict[str, object]) -> Iterator[str]:
    yield from (path for path, default in _BOOLEANS.items() if now.get(path, default) and not was.get(path, default))
    for path in dict.fromkeys((*was, *now)):
        if now.get(path) != was.get(path) and _gives_up(path, now.get(path)):
            yield path


def _gives_up(path: str, value: object) -> bool:
    """Whether a changed value gives up a protection; None if the patch removes it."""
    if path.endswith((".hostPort", ".hostPath.path")) and value is None:
        return False
    has_token = _SOURCES.match(path) and "serviceAccountToken" in str(value)
    return bool(_GUARDED.match(path) or has_token)


def _containers(template: Manifest) -> set[str]:
    return {each["name"] for each in template["spec"].get("initContainers") or []}
