"""Rules for `tracking` and `notify`."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from trainer.job.problem import Problem
from trainer.job.spec import JobSpec, Outside

_CHATS = (
    "hooks.slack.com",
    "discord.com/api/webhooks/",
    ".webhook.office.com",
    ".logic.azure.com",
    "chat.googleapis.com",
)
"""Parts of the addresses by which anyone can write to a chat."""
MLFLOW_LOGIN = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
_WAY_THERE = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def is_for_tracker(variable: str) -> bool:
    """Whether `trainer track` gets a variable of `env` or `secrets`: MLflow's own, and those of proxies and
    certificates."""
    return variable.startswith("MLFLOW_") or variable.upper() in _WAY_THERE


def secrets_of_tasks(spec: JobSpec) -> dict[str, Outside]:
    """The secrets that the tasks get: without MLflow's login, if only `trainer track` needs it."""
    return {name: each for name, each in spec.secrets.items() if spec.tracking is None or name not in MLFLOW_LOGIN}


def secrets_of_tracker(spec: JobSpec) -> dict[str, Outside]:
    return {name: each for name, each in spec.secrets.items() if is_for_tracker(name)}


def problems(spec: JobSpec) -> list[Problem]:
    """Lists every broken rule."""
    return [*_tracking(spec), *_notify(spec)]


def _tracking(spec: JobSpec) -> Iterator[Problem]:
    if spec.tracking is None:
        return
    address = spec.tracking.mlflow
    if rule := address_rule(address):
        login = f"; under secrets: {', '.join(MLFLOW_LOGIN[:2])}" if "@" in address else ""
        yield Problem("tracking.mlflow", without_login(address), f"{rule}{login}")
    elif urlsplit(address).query or urlsplit(address).fragment:
        yield Problem("tracking.mlflow", address, "must end with the server's path; remove ? and # and what follows")


def _notify(spec: JobSpec) -> Iterator[Problem]:
    given = spec.notify
    if given is None:
        return
    if given.webhook is None and given.webhook_from is None and given.command is None:
        yield Problem("notify", given.model_dump(exclude_defaults=True), "must have webhook, webhook_from or command")
    if given.webhook is not None and given.webhook_from is not None:
        yield Problem("notify.webhook_from", given.webhook_from, "give it or webhook, not both")
    if given.webhook is not None and (rule := address_rule(given.webhook)):
        yield Problem("notify.webhook", without_login(given.webhook), rule)
    if given.webhook_from is not None and given.webhook_from not in spec.secrets:
        rule = f"must be a variable of secrets; add it there: secrets: {{{given.webhook_from}: {{}}}}"
        yield Problem("notify.webhook_from", given.webhook_from, rule, ("secrets",))
    if given.command is not None and not given.command[0]:
        yield Problem("notify.command", given.command, "its first word must be a program")


def address_rule(address: str) -> str:
    """Why a text is no address that can be called; empty if it is one."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"is no address: {error}"
    if parts.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if not host or any(character.isspace() for character in address):
        return "must be an address: http://HOST:PORT/PATH"
    if parts.username is not None or parts.password is not None:
        return (
            "must not contain a name or password, which manifests and result.json would show; remove what is before @"
        )
    return ""


def without_login(address: str) -> str:
    """An address without the name and password in it, for messages."""
    scheme, slashes, rest = address.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}" if "@" in host else address


def looks_secret(address: str) -> bool:
    """Whether an address is one that only its owner should know."""
    return any(chat in address for chat in _CHATS)
