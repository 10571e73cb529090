"""Rules for `tracking` and `notify`."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from trainer.job.addresses import address_rule, without_login
from trainer.job.rules.problem import Problem
from trainer.job.spec import JobSpec
from trainer.job.tracker import MLFLOW_LOGIN


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
