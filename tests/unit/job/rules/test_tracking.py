"""`tracking` and `notify`: what is refused, in one line, and what they have nothing to do with."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.job.addresses import looks_secret
from trainer.job.cluster import tasks_of
from trainer.job.errors import UserError
from trainer.job.load import build
from trainer.model_dir import compatibility


def raw(**more: Any) -> dict[str, Any]:
    return {"name": "j", "strategy": "one_device", **more}


LOGIN = "must not contain a name or password, which manifests and result.json would show; remove what is before @"


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"tracking": {}}, "tracking.mlflow: null: is required"),
        ({"tracking": "http://x"}, "tracking: 'http://x': must be a mapping of settings: {mlflow: http://x}"),
        (
            {"tracking": {"mlfow": "http://x", "mlflow": "http://x"}},
            "tracking.mlfow: 'http://x': unknown key; did you mean mlflow?",
        ),
        ({"tracking": {"mlflow": "./mlruns"}}, "tracking.mlflow: './mlruns': must begin with http:// or https://"),
        ({"tracking": {"mlflow": "http://"}}, "tracking.mlflow: 'http://': must be an address: http://HOST:PORT/PATH"),
        (
            {"tracking": {"mlflow": "http://h:99999"}},
            "tracking.mlflow: 'http://h:99999': is no address: Port out of range 0-65535",
        ),
        ({"tracking": {"mlflow": "http://[::1"}}, "tracking.mlflow: 'http://[::1': is no address: Invalid IPv6 URL"),
        (
            {"tracking": {"mlflow": "http://me:pass@h:5000"}},
            f"tracking.mlflow: 'http://h:5000': {LOGIN}; under secrets: "
            "MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD",
        ),
        (
            {"tracking": {"mlflow": "http://h/?workspace=a"}},
            "tracking.mlflow: 'http://h/?workspace=a': must end with the server's path; "
            "remove ? and # and what follows",
        ),
        ({"notify": {}}, "notify: {}: must have webhook, webhook_from or command"),
        ({"notify": {"webhook": "ftp://h"}}, "notify.webhook: 'ftp://h': must begin with http:// or https://"),
        ({"notify": {"webhook": "https://me:pass@h/x"}}, f"notify.webhook: 'https://h/x': {LOGIN}"),
        (
            {"notify": {"webhook_from": "CHAT"}},
            "notify.webhook_from: 'CHAT': must be a variable of secrets; add it there: secrets: {CHAT: {}}",
        ),
        (
            {"notify": {"webhook": "http://h", "webhook_from": "CHAT"}, "secrets": {"CHAT": {}}},
            "notify.webhook_from: 'CHAT': give it or webhook, not both",
        ),
        ({"notify": {"command": "echo done"}}, "notify.command: 'echo done': must be a list of words: [echo, done]"),
        ({"notify": {"command": [""]}}, 'notify.command: [""]: its first word must be a program'),
        ({"notify": {"webhook": "http://h", "when": "failed"}}, "notify.when: 'failed': must be a list as in [failed]"),
        (
            {"notify": {"webhook": "http://h", "when": ["fail"]}},
            "notify.when.0: 'fail': must be one of done, failed, stopped; did you mean failed?",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError) as found:
        build(raw(**more))
    assert str(found.value) == f"spec: {problem}"


@pytest.mark.parametrize(
    "more",
    [
        {"tracking": {"mlflow": "https://mlflow.example.com/team/", "experiment": "Zählung / 数"}},
        {"tracking": {"mlflow": "http://[::1]:5000"}},
        {"notify": {"webhook": "https://hooks.example.com/services/a?b=c"}},
        {
            "notify": {"webhook_from": "CHAT", "command": ["mail", "é@example.com"], "when": ["stopped"]},
            "secrets": {"CHAT": {}},
        },
    ],
)
def test_what_can_work_is_accepted(more: dict[str, Any]) -> None:
    build(raw(**more))


def test_they_determine_no_result() -> None:
    plain, told = build(raw()), build(raw(tracking={"mlflow": "http://h"}, notify={"webhook": "http://h"}))
    counts = tasks_of(plain)[0].counts
    assert compatibility.key(plain, counts, None) == compatibility.key(told, counts, None)


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", True),
        ("https://discord.com/api/webhooks/1/x", True),
        ("https://example.webhook.office.com/webhookb2/x", True),
        ("http://alerts.internal:8080/done", False),
    ],
)
def test_addresses_of_chats_are_known(address: str, secret: bool) -> None:
    assert looks_secret(address) is secret
