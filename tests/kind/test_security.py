"""Which clients can connect to a job's ports."""

from __future__ import annotations

import time
from pathlib import Path

from tests.kind.cluster import Namespace, trainer
from tests.local import specs
from trainer.supervisor.chief import network_policy

ALLOW_ALL = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: allow-all}
spec: {podSelector: {}, policyTypes: [Egress, Ingress], egress: [{}], ingress: [{}]}
"""
POST = """
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], data=b"{}", timeout=10)
except urllib.error.HTTPError as error:
    print(error.code)
"""
KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
    print("open")
except OSError as error:
    print("closed", error)
"""


def knock(namespace: Namespace, who: str, address: str, port: int) -> str:
    return namespace.kubectl("exec", who, "--", "python3", "-c", KNOCK, address, str(port)).split()[0]


def test_another_pod_is_refused_by_the_network_policy_and_not_without_it(
    namespace: Namespace, elsewhere: Namespace, tmp_path: Path
) -> None:
    job = namespace.submit_spec(tmp_path, specs.mirrored(steps=100_000, workload=specs.PACED))
    job.until_step(1)
    doors = [(pod["status"]["podIP"], port) for pod in job.pods() for port in (2222, 3222)]
    assert [knock(elsewhere, "stranger", *door) for door in doors] == ["closed"] * 4
    assert [knock(namespace, "job/digits-worker", *door) for door in doors] == ["open"] * 4
    # Longer than the chief tries: it has found that the policy is enforced.
    seen = job.until("the check is over", lambda s: s["seconds"] > sum(network_policy.PAUSES) + 15)
    assert seen["warnings"] == []
    namespace.kubectl("delete", "networkpolicy", "digits")
    deadline = time.monotonic() + 30
    while [knock(elsewhere, "stranger", *door) for door in doors] != ["open"] * 4:
        assert time.monotonic() < deadline, "nothing refuses the stranger any more, and it is not let in"


def test_a_policy_without_effect_is_warned_of_and_a_strangers_report_is_counted(
    namespace: Namespace, elsewhere: Namespace, tmp_path: Path
) -> None:
    """A policy that allows everything, as on a cluster whose network plugin ignores policies."""
    namespace.kubectl("apply", "--filename=-", text=ALLOW_ALL)
    job = namespace.submit_spec(tmp_path, specs.mirrored(steps=100_000, workload=specs.PACED))
    (text,) = job.until("it warns", lambda s: s["warnings"])["warnings"]
    assert "which the job's NetworkPolicy forbids" in text
    assert text in trainer("status", "--namespace", namespace.name, "digits")
    assert f"warning: {text}" in job.log()
    report = f"http://{job.pods('chief')[0]['status']['podIP']}:3222/report"
    assert elsewhere.kubectl("exec", "stranger", "--", "python3", "-c", POST, report).split() == ["400"]
    assert job.status()["refused_reports"] == {"malformed": 1}
