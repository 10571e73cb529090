"""Warnings of a spec: what may surprise the user, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from trainer.debug.redaction import PASSWORD_IN_URL
from trainer.job import code, workload_file
from trainer.job.addresses import looks_secret
from trainer.job.names import SECRET_LIKE, is_loopback
from trainer.job.spec import JobSpec
from trainer.job.tracker import MLFLOW_LOGIN


def warnings(spec: JobSpec) -> list[str]:
    """A warning for each plain value with the name of a secret, and each imported module that containers lack."""
    name = spec.workload
    return [
        *(workload_file.left_behind(Path(name), name, code.root(spec)) if name.endswith(".py") else ()),
        *_plain_secrets(spec),
        *_plain_webhook(spec),
        *_unencrypted(spec),
        *_in_arguments(spec),
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


def _unencrypted(spec: JobSpec) -> list[str]:
    """A warning for each address to which a password is sent that everybody on the way can read."""
    found = []
    if spec.tracking and _is_plain(spec.tracking.mlflow) and {*MLFLOW_LOGIN} & {*spec.secrets}:
        found.append("tracking.mlflow: the login is sent over http, unencrypted; use https")
    if spec.notify and _is_plain(spec.notify.webhook or "") and looks_secret(spec.notify.webhook or ""):
        found.append("notify.webhook: the address is sent over http, unencrypted; use https")
    groups = {f"tasks.{name}.env": group for name in spec.tasks.counts() if (group := spec.tasks.group(name))}
    variables: dict[str, Mapping[str, object]] = {"env": spec.env, "kubernetes.env": spec.kubernetes.env}
    for place, given in {**variables, **{place: group.env for place, group in groups.items()}}.items():
        for name, value in given.items():
            if isinstance(value, str) and _is_plain(value) and PASSWORD_IN_URL.search(value):
                found.append(f"{place}.{name}: its password is sent over http, unencrypted; use https")
    return found


def _is_plain(address: str) -> bool:
    parts = address.partition("://")
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return False
    return parts[0].lower() == "http" and not is_loopback(host)


def _in_arguments(spec: JobSpec) -> list[str]:
    """A warning for each secret among the words of a command, which ps(1) shows to all users of a machine."""
    programs = [spec.program_of(task_type) for task_type in spec.tasks.counts()] if spec.program else []
    commands = {
        "program": [word for program in programs for word in program],
        "notify.command": (spec.notify and spec.notify.command) or [],
    }
    return [
        f"{place}: $({name}): other users of the machine see the words of a command (ps), and this secret in them; let "
        "the program read the variable itself"
        for place, words in commands.items()
        for name in spec.secrets
        if any(f"$({name})" in word for word in words)
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
