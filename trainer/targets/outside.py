"""Values that a spec refers to but does not contain: those of `secrets`, which are never printed, and modules of the
working directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trainer.debug.redaction import PASSWORD_IN_URL
from trainer.job import code, workload_file
from trainer.job.errors import UserError
from trainer.job.names import SECRET_LIKE
from trainer.job.spec import JobSpec, Outside
from trainer.job.tracking_rules import looks_secret


def values(spec: JobSpec, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The values of a spec's secrets by variable, from their files or from our environment.

    Raises:
        UserError: one is missing or empty; all problems at once.
    """
    found = {name: _value(name, source, environ) for name, source in spec.secrets.items()}
    if problems := [problem for _, problem in found.values() if problem]:
        raise UserError(*problems)
    return {name: value for name, (value, _) in found.items()}


def known(spec: JobSpec | None, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Values that must never be shown, by name: those of a spec's secrets that can be had here, and those of our
    environment that look like secrets, or are addresses with a password."""
    own = {name: value for name, value in environ.items() if SECRET_LIKE.search(name) or PASSWORD_IN_URL.search(value)}
    given = {name: _value(name, source, environ)[0] for name, source in spec.secrets.items()} if spec else {}
    return {**own, **{name: value for name, value in given.items() if value}}


def _value(name: str, source: Outside, environ: Mapping[str, str]) -> tuple[str, str]:
    """The value of a secret, and what is wrong with it."""
    path = f"secrets.{name}"
    if source.file is None:
        value = environ.get(name, "")
        rule = f"the variable {name} is not set here, or is empty; export it, or name a file: {{file: PATH}}"
    else:
        path, rule = f"{path}.file: {source.file!r}", "is empty"
        try:
            value = Path(source.file).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            value, rule = "", f"cannot be read: {getattr(error, 'strerror', None) or 'is no text'}"
    if not value:
        return "", f"{path}: {rule}"
    return value, f"{path}: holds a zero byte, which no environment variable can" if "\0" in value else ""


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
    given = [f"kubernetes.{name}" for name in used if any(getattr(pod, name) for pod in pods)]
    if not spec.program or not given:
        return []
    return [
        f"{', '.join(given)}: only pods have them: the program runs without; use env, data and $(TRAINER_MODEL_DIR)"
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
