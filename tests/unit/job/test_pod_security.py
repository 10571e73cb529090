"""The Pod Security level that a spec's pods need, by the published checks of each level."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.job import pod_security
from trainer.job.load import build


def level(kubernetes: dict[str, Any]) -> str:
    spec = build(
        {"name": "j", "strategy": "parameter_server", "tasks": {"worker": 1, "ps": 1}, "kubernetes": kubernetes}
    )
    return pod_security.level(spec)[0]


def of_task(**context: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "task", "securityContext": context}]}}


@pytest.mark.parametrize(
    ("patch", "needed"),
    [
        ({"spec": {"runtimeClassName": "nvidia", "hostAliases": [{"ip": "10.0.0.9"}]}}, "restricted"),
        ({"spec": {"hostNetwork": True}}, "privileged"),
        ({"spec": {"hostNetwork": False}}, "restricted"),
        ({"spec": {"volumes": [{"name": "tmp", "hostPath": {"path": "/"}}]}}, "privileged"),
        ({"spec": {"volumes": [{"name": "x", "nfs": {"server": "s", "path": "/"}}]}}, "baseline"),
        ({"spec": {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}}, "restricted"),
        ({"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}}, "privileged"),
        ({"spec": {"securityContext": {"seccompProfile": {"type": "Localhost"}}}}, "restricted"),
        ({"spec": {"securityContext": {"seccompProfile": None}}}, "baseline"),
        ({"spec": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}}, "privileged"),
        ({"spec": {"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}}}, "restricted"),
        ({"spec": {"securityContext": {"sysctls": [{"name": ["x"]}]}}}, "privileged"),
        ({"spec": {"securityContext": {"runAsUser": 0}}}, "baseline"),
        ({"spec": {"securityContext": {"runAsUser": 2000, "fsGroupChangePolicy": "OnRootMismatch"}}}, "restricted"),
        (of_task(capabilities={"add": ["IPC_LOCK"]}), "privileged"),
        (of_task(capabilities={"add": ["CHOWN"]}), "baseline"),
        (of_task(capabilities={"drop": ["NET_RAW"]}), "baseline"),
        (of_task(appArmorProfile={"type": "Unconfined"}), "privileged"),
        (of_task(readOnlyRootFilesystem=False), "restricted"),
        (of_task(allowPrivilegeEscalation=True), "baseline"),
    ],
)  # fmt: skip
def test_the_level_of_a_patch(patch: dict[str, Any], needed: str) -> None:
    assert level({"pod": patch}) == needed


LOCKED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize(
    ("context", "needed"),
    [
        ({}, "restricted"),  # ours is used
        (LOCKED, "restricted"),
        ({**LOCKED, "appArmorProfile": {"type": "Unconfined"}}, "privileged"),
        ({**LOCKED, "runAsNonRoot": False}, "baseline"),
        ({"readOnlyRootFilesystem": True}, "baseline"),
        ({"allowPrivilegeEscalation": False, "capabilities": {"drop": 5}}, "baseline"),
    ],
)
def test_the_level_of_a_users_container(context: dict[str, Any], needed: str) -> None:
    assert level({"sidecars": [{"name": "s", "image": "i", "securityContext": context}]}) == needed
