"""Warnings of a spec: what may surprise the user, before anything starts."""

from __future__ import annotations

from pathlib import Path

from trainer.job import code, workload_file
from trainer.job.addresses import looks_secret
from trainer.job.names import SECRET_LIKE
from trainer.job.spec import JobSpec


def warnings(spec: JobSpec) -> list[str]:
    """A warning for each plain value with the name of a secret, and each imported module that containers lack."""
    name = spec.workload
    return [
        *(workload_file.left_behind(Path(name), name, code.root(spec)) if name.endswith(".py") else ()),
        *_plain_secrets(spec),
        *_plain_webhook(spec),
        *_open_page(spec),
    ]


def _plain_webhook(spec: JobSpec) -> list[str]:
    address = (spec.notify and spec.notify.webhook) or ""
    if not looks_secret(address):
        return []
    return [
        "notify.webhook: anyone with this address can write to the chat, and it stands in manifests and result.json; "
        "put it under secrets, and name its variable in notify.webhook_from"
    ]


def _open_page(spec: JobSpec) -> list[str]:
    if spec.page != "network":
        return []
    return [
        "page: network: without a password, all that reach the chief's control port can read the logs and the spec; "
        "restrict that port by a NetworkPolicy or firewall, or set page: loopback and use `trainer ui`"
    ]


def only_for_pods(spec: JobSpec) -> list[str]:
    """A warning if a program may miss what `kubernetes` gives to pods alone, on a target without pods."""
    used = ("env", "env_from", "volumes", "mounts", "init_containers", "sidecars")
    pods = [spec.pod_of(task_type) for task_type in spec.tasks.counts()]
    settings = [f"kubernetes.{name}" for name in used if any(getattr(pod, name) for pod in pods)]
    if not spec.program or not settings:
        return []
    return [
        f"{', '.join(settings)}: only pods have them: the program runs without; use env, data and $(TRAINER_MODEL_DIR)"
    ]


def _plain_secrets(spec: JobSpec) -> list[str]:
    groups = {f"tasks.{t}": group for t in spec.tasks.counts() if (group := spec.tasks.group(t))}
    places = {"env": spec.env, **{f"{place}.env": group.env for place, group in groups.items()}}
    pods = {
        "kubernetes": spec.kubernetes,
        **{f"{place}.kubernetes": group.kubernetes for place, group in groups.items()},
    }
    plain = {f"{place}.env": [k for k, v in pod.env.items() if isinstance(v, str)] for place, pod in pods.items()}
    return [
        f"{place}.{name}: looks like a secret, and stands in manifests and result.json; put it under secrets"
        for place, variables in {**places, **plain}.items()
        for name in variables
        if SECRET_LIKE.search(name)
    ]
