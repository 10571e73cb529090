"""The Pod Security level that a job's volumes and the user's containers need; "restricted" admits all else in its
pods (https://kubernetes.io/docs/concepts/security/pod-security-standards/)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainer.job.data import SOURCES, copies, mounted
from trainer.job.kubernetes import Pod
from trainer.job.spec import JobSpec

_RESTRICTED = ("claim", "csi", "configMap", "downwardAPI", "ephemeral", "image", "projected", "secret")
"""Sources of data that "restricted" admits (check_restrictedVolumes.go; image since kubernetes#130394)."""


_OF_PODS = (*_RESTRICTED, "persistentVolumeClaim", "emptyDir")
_BASELINE = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip
"""Capabilities that "baseline" lets a container add."""
_SYSCTLS = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}  # fmt: skip
"""Kernel settings that "baseline" admits (check_sysctls.go)."""


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


def _sections(spec: JobSpec) -> Iterator[tuple[str, Pod]]:
    """The settings of pods, with their places in the spec."""
    yield "kubernetes", spec.kubernetes
    for task_type in spec.tasks.counts():
        yield f"tasks.{task_type}.kubernetes", spec.tasks.of(task_type).kubernetes


def _of_pods(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """The level of each volume and container that the user adds to pods."""
    for place, pod in _sections(spec):
        for volume in pod.volumes:
            kind = next((key for key in volume if key != "name"), "emptyDir")
            yield f"{place}.volumes: {kind}", _level_of(("volumes", kind), None)
        for key in ("init_containers", "sidecars"):
            for each in getattr(pod, key):
                yield f"{place}.{key}: {each.get('name')}", _of_container(each)


def _of_patches(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """The level of each patch of a pod template."""
    for place, pod in _sections(spec):
        for names, value in _values(pod.pod):
            yield f"{place}.pod: {'.'.join(names)}", _level_of(names, value)


def _of_container(container: Mapping[str, object]) -> str:
    """The level of a container: ours is "restricted", which it has unless it has a securityContext of its own."""
    needed = {_level_of(("containers", *names), value) for names, value in _values(container)}
    context = container.get("securityContext")
    if isinstance(context, dict) and context:
        capabilities = context.get("capabilities")
        dropped = capabilities.get("drop") if isinstance(capabilities, dict) else None
        all_dropped = isinstance(dropped, list) and "ALL" in dropped
        if context.get("allowPrivilegeEscalation") is not False or not all_dropped:
            needed.add("baseline")
    return next((level for level in ("privileged", "baseline") if level in needed), "restricted")


def _values(value: object, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Each value in nested mappings and lists, with the names on the way to it; lists of plain values are one."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _values(each, (*names, name))
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for each in value:
            yield from _values(each, names)
    else:
        yield names, value


def _level_of(names: tuple[str, ...], value: object) -> str:
    """The level that admits one value of a pod, given by the names on the way to it."""
    of, last = ("", "", *names)[-2:]
    if "volumes" in names:
        source = (*names, "")[names.index("volumes") + 1]
        return "privileged" if source == "hostPath" else "restricted" if source in ("name", *_OF_PODS) else "baseline"
    listed = {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()
    if (
        (last in ("hostNetwork", "hostPID", "hostIPC", "hostProcess", "privileged", "hostPort") and value)
        or (last == "procMount" and value not in (None, "Default"))
        or (of in ("seccompProfile", "appArmorProfile") and value == "Unconfined")
        or (of == "seLinuxOptions" and last in ("user", "role"))
        or ("sysctls" in names and last == "name" and str(value) not in _SYSCTLS)
        or (of == "capabilities" and last == "add" and listed - _BASELINE)
    ):
        return "privileged"
    if "securityContext" not in names:
        return "restricted"
    weaker = (
        (last == "allowPrivilegeEscalation" and value is not False)
        or (last == "runAsNonRoot" and value is not True)
        or (last == "runAsUser" and value == 0)
        or (last in ("securityContext", "seccompProfile", "capabilities") and value is None)
        or (last == "drop" and "ALL" not in listed)
        or (last == "add" and listed - {"NET_BIND_SERVICE"})
        or (of == "seccompProfile" and last == "type" and value not in ("RuntimeDefault", "Localhost"))
    )
    return "baseline" if weaker else "restricted"
