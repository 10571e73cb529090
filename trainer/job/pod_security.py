"""The Pod Security level that a job's volumes and the user's containers need; "restricted" admits all else in its
pods (https://kubernetes.io/docs/concepts/security/pod-security-standards/)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainer.job.data import SOURCES, copies, mounted
from trainer.job.spec import JobSpec

_RESTRICTED = ("claim", "csi", "configMap", "downwardAPI", "ephemeral", "image", "projected", "secret")
"""Sources of data that it admits (check_restrictedVolumes.go; image since kubernetes#130394)."""


_OF_PODS = (*_RESTRICTED, "persistentVolumeClaim", "emptyDir")
_BASELINE = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip
"""Capabilities that it lets a container add."""


def level(spec: JobSpec) -> tuple[str, list[str]]:
    """The level, and the settings that "restricted" does not admit."""
    kinds = {f"data.{name}.kubernetes": _kind(spec, name) for name in mounted(spec.data)}
    nodes = [f"{path}.host_path" for path, kind in kinds.items() if kind == "host_path"]
    if spec.kubernetes.volume.host_path:
        nodes.append("kubernetes.volume.host_path")
    if spec.kubernetes.data_cache and copies(spec.data):
        nodes.append("kubernetes.data_cache")
    others = [f"{path}: {kind}" for path, kind in kinds.items() if kind not in (None, "host_path", *_RESTRICTED)]
    for setting, needed in dict([*_of_pods(spec), *_of_patches(spec)]).items():
        {"privileged": nodes, "baseline": others}.get(needed, []).append(setting)
    return "privileged" if nodes else "baseline" if others else "restricted", [*nodes, *others]


def _kind(spec: JobSpec, name: str) -> str | None:
    """The setting that names the source, or the source itself under `volume`."""
    if (volume := spec.data[name].kubernetes) is None:
        return None
    return (
        next(iter(volume.volume))
        if volume.volume
        else next(each for each in SOURCES if getattr(volume, each) is not None)
    )


def _of_pods(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """The level of each volume and container that the user adds to pods."""
    groups = {task_type: spec.tasks.group(task_type) for task_type in spec.tasks.counts()}
    pods = {f"tasks.{task_type}.kubernetes": group.kubernetes for task_type, group in groups.items() if group}
    for place, pod in {"kubernetes": spec.kubernetes, **pods}.items():
        for volume in pod.volumes:
            kind = next((key for key in volume if key != "name"), "emptyDir")
            needed = "privileged" if kind == "hostPath" else "restricted" if kind in _OF_PODS else "baseline"
            yield f"{place}.volumes: {kind}", needed
        for key in ("init_containers", "sidecars"):
            for each in getattr(pod, key):
                yield f"{place}.{key}: {each.get('name')}", _of_container(each)


_OPEN = ("hostNetwork", "hostPID", "hostIPC", "privileged", "procMount", "add")
_ANY = ("shareProcessNamespace", "automountServiceAccountToken", "readOnlyRootFilesystem")
"""Protections that no level requires."""


def _of_patches(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """The level of each protection that patches give up."""
    for path in spec.kubernetes.unsafe:
        last = path.rpartition(".")[2]
        needed = "privileged" if last in _OPEN else "restricted" if last in _ANY else "baseline"
        yield f"kubernetes.unsafe: {path}", needed


def _of_container(container: Mapping[str, object]) -> str:
    """The level of a container: ours is "restricted", which it has unless it has a securityContext of its own."""
    context = _mapping(container.get("securityContext"))
    capabilities = _mapping(context.get("capabilities"))
    added, dropped = _texts(capabilities.get("add")), _texts(capabilities.get("drop"))
    unconfined = _mapping(context.get("seccompProfile")).get("type") == "Unconfined"
    ports = container.get("ports")
    host_port = any(_mapping(port).get("hostPort") for port in (ports if isinstance(ports, list) else []))
    if host_port or context.get("privileged") or unconfined or "procMount" in context or added - _BASELINE:
        return "privileged"
    as_root = context.get("runAsNonRoot") is False or context.get("runAsUser") == 0
    locked = context.get("allowPrivilegeEscalation") is False and "ALL" in dropped and added <= {"NET_BIND_SERVICE"}
    return "restricted" if not context or (locked and not as_root) else "baseline"


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> set[str]:
    return {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()
