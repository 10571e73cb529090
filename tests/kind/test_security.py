"""A job whose NetworkPolicy has no effect. One that has is in test_tour.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kind.cluster import Namespace, trainer
from tests.local import specs

pytestmark = pytest.mark.part("kubernetes")

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
    assert elsewhere.kubectl("exec", "stranger", "--", "python3", "-c", POST, report).split() == ["403"]
    assert job.status()["refused_reports"] == {"unsigned": 1}
