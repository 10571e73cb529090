"""The object by which Prometheus' operator finds a job. What Prometheus itself scrapes is in test_tour.py."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.kind.cluster import Namespace, kubectl, trainer
from tests.local import specs
from trainer.job.errors import Exit

CRD_NAME = "podmonitors.monitoring.coreos.com"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": CRD_NAME},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def test_a_pod_monitor_is_made_where_the_cluster_has_them(namespace: Namespace, tmp_path: Path) -> None:
    metrics = {"namespace": "monitoring", "pods": {"app": "prometheus"}, "kind": "podmonitor"}
    path = tmp_path / "monitor.yaml"
    path.write_text(yaml.safe_dump({**specs.mirrored(), "kubernetes": {"metrics": metrics, "suspend": True}}))
    refused = trainer("submit", "--namespace", namespace.name, str(path), code=Exit.TARGET)
    assert refused.count("\n") == 1
    assert "this cluster has no PodMonitor (monitoring.coreos.com/v1): install the Prometheus operator" in refused
    assert namespace.get("jobs") == []
    kubectl("apply", "--filename=-", text=json.dumps(CRD))
    try:
        kubectl("wait", "--for=condition=Established", f"crd/{CRD_NAME}")
        trainer("submit", "--namespace", namespace.name, str(path))
        (monitor,) = namespace.get("podmonitors")
        assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "metrics"}]
        trainer("delete", "--namespace", namespace.name, "digits", "--volumes")
        assert namespace.get("podmonitors") == []
    finally:
        kubectl("delete", f"crd/{CRD_NAME}")
