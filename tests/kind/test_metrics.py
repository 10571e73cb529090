"""A real Prometheus on the cluster scrapes every task of a job, and reaches nothing else of it.

Debian's Prometheus has no discovery of pods: the test reads them, with the rights of Prometheus' service account, and
hands them over as targets with the labels that the discovery would give them. Everything else of
k8s/monitoring/prometheus.yaml is used as it is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kind.cluster import ROOT, Namespace, kubectl, trainer
from tests.kind.test_security import knock
from tests.local import specs
from trainer.job.errors import Exit

IMAGE = "prometheus:test"
DOCKERFILE = """
FROM debian:trixie-slim
COPY prometheus /usr/bin/prometheus
USER 1000:1000
ENTRYPOINT ["/usr/bin/prometheus", "--config.file=/etc/prometheus/prometheus.yaml", "--storage.tsdb.path=/tmp/data"]
"""
MONITORING = ROOT / "k8s/monitoring"
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
FETCH = """
import sys, urllib.error, urllib.request
def status(path, data=None):
    try:
        return urllib.request.urlopen(sys.argv[1] + path, data, timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code
print(status("/metrics"), status("/status"), status("/report", b"{}"))
"""
NO_REPORT = """
import urllib.error, urllib.request
try:
    urllib.request.urlopen("http://digits-chief-0.digits:3222/report", b"{}", timeout=5)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.fixture
def monitoring(tmp_path: Path) -> Iterator[Namespace]:
    """A namespace with Prometheus, which reads k8s/monitoring, and a pod `scraper` with Python."""
    program = shutil.which("prometheus")
    assert program, "prometheus is missing: apt install prometheus"
    shutil.copy(program, tmp_path / "prometheus")
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    subprocess.run(["docker", "build", "--quiet", "--tag", IMAGE, tmp_path], check=True, timeout=300)
    cluster = os.environ["KIND_CLUSTER"]
    load = ["kind", "load", "docker-image", IMAGE, "--name", cluster, "--nodes", f"{cluster}-worker"]
    subprocess.run(load, check=True, timeout=300)
    space = Namespace(f"monitoring-{uuid.uuid4().hex[:6]}")
    kubectl("create", "namespace", space.name)
    space.kubectl("create", "serviceaccount", "prometheus")
    kubectl("create", "clusterrole", space.name, "--verb=get,list,watch", "--resource=pods")
    account = f"--serviceaccount={space.name}:prometheus"
    kubectl("create", "clusterrolebinding", space.name, f"--clusterrole={space.name}", account)
    config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    config["global"]["scrape_interval"] = "2s"
    (scraped,) = config["scrape_configs"]
    assert scraped.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    scraped["file_sd_configs"] = [{"files": ["/tmp/targets.json"], "refresh_interval": "2s"}]
    files = {"prometheus.yaml": json.dumps(config), "rules.yaml": (MONITORING / "rules.yaml").read_text()}
    mount = {"name": "config", "mountPath": "/etc/prometheus"}
    pod = {
        "serviceAccountName": "prometheus",
        "nodeName": f"{cluster}-worker",
        "containers": [{"name": "prometheus", "image": IMAGE, "imagePullPolicy": "Never", "volumeMounts": [mount]}],
        "volumes": [{"name": "config", "configMap": {"name": "prometheus"}}],
    }
    metadata = {"name": "prometheus", "labels": {"app": "prometheus"}}
    for made in (
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod},
    ):
        space.kubectl("apply", "--filename=-", text=json.dumps(made))
    space.kubectl("run", "scraper", "--image=trainer:cpu", "--labels=app=prometheus", "--command", "--", "sleep", "600")
    space.kubectl("run", "other", "--image=trainer:cpu", "--command", "--", "sleep", "600")
    space.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s", seconds=70)
    yield space
    kubectl("delete", "namespace", space.name, "--wait=false")
    kubectl("delete", f"clusterrole/{space.name}", f"clusterrolebinding/{space.name}", check=False)


def discover(space: Namespace) -> None:
    """Hands over all ports of all pods, as Prometheus' discovery sees them (kubernetes_sd_configs, role pod)."""
    account = f"--as=system:serviceaccount:{space.name}:prometheus"
    pods = json.loads(kubectl("get", "pods", "--all-namespaces", "--output=json", account))["items"]
    found = []
    for pod in pods:
        labels = {
            "namespace": pod["metadata"]["namespace"],
            "pod_name": pod["metadata"]["name"],
            "pod_ip": pod["status"].get("podIP", ""),
            "pod_phase": pod["status"]["phase"],
        }
        for name, value in pod["metadata"].get("annotations", {}).items():
            labels[f"pod_annotation_{re.sub('[^a-zA-Z0-9_]', '_', name)}"] = value
        for port in (port for each in pod["spec"]["containers"] for port in each.get("ports", [])):
            number = str(port["containerPort"])
            meta = {**labels, "pod_container_port_number": number}
            targets = [f"{labels['pod_ip']}:{number}"]
            found.append({"targets": targets, "labels": {f"__meta_kubernetes_{k}": v for k, v in meta.items()}})
    words = ["exec", "--stdin", "prometheus", "--", "sh", "-c", "cat > /tmp/new && mv /tmp/new /tmp/targets.json"]
    space.kubectl(*words, text=json.dumps(found))


def query(space: Namespace, expression: str) -> dict[str, float]:
    """Values by pod, as Prometheus answers through the API server."""
    path = f"/api/v1/namespaces/{space.name}/pods/prometheus:9090/proxy/api/v1/query"
    answer = json.loads(kubectl("get", "--raw", f"{path}?{urllib.parse.urlencode({'query': expression})}"))
    return {each["metric"].get("pod", ""): float(each["value"][1]) for each in answer["data"]["result"]}


def until(space: Namespace, expression: str, wanted: dict[str, float]) -> None:
    deadline = time.monotonic() + 60
    while (found := query(space, expression)) != wanted:
        assert time.monotonic() < deadline, (expression, found, space.kubectl("logs", "prometheus", "--tail=20"))
        time.sleep(1)


def spec(**settings: Any) -> dict[str, Any]:
    made = specs.parameter_server(steps=100_000, workers=2, workload=specs.PACED)
    return {**made, "kubernetes": {"metrics": settings}}


def test_prometheus_scrapes_every_task_and_reaches_nothing_else(
    namespace: Namespace,
    monitoring: Namespace,
    elsewhere: Namespace,
    tmp_path: Path,
) -> None:
    found = {"namespace": monitoring.name, "pods": {"app": "prometheus"}}
    job = namespace.submit_spec(tmp_path, spec(**found))
    job.until_step(1)
    pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in job.pods()}
    assert len(pods) == 4
    discover(monitoring)
    mine = f'{{namespace="{namespace.name}"}}'
    until(monitoring, f"up{mine}", dict.fromkeys(pods, 1.0))
    until(monitoring, f"count by (pod) (trainer_build_info{mine})", dict.fromkeys(pods, 1.0))
    chief = job.newest("chief")
    until(monitoring, f"sum by (pod) (trainer_task_up{mine})", {chief: 4.0})
    until(monitoring, f"trainer_memory_bytes{mine} > 50e6 < bool 8e9", dict.fromkeys(pods, 1.0))

    doors = [(address, port) for address in pods.values() for port in (2222, 3222)]
    assert {knock(monitoring, "scraper", *door) for door in doors} == {"closed"}
    # One port is open, to one namespace and the pods that the spec names there.
    assert {knock(monitoring, "scraper", address, 4222) for address in pods.values()} == {"open"}
    assert {knock(monitoring, "other", address, 4222) for address in pods.values()} == {"closed"}
    assert {knock(elsewhere, "stranger", address, 4222) for address in pods.values()} == {"closed"}
    url = f"http://{pods[chief]}:4222"
    assert monitoring.kubectl("exec", "scraper", "--", "python3", "-c", FETCH, url).split() == ["200", "404", "404"]

    assert namespace.kubectl("exec", job.newest("worker"), "--", "python3", "-c", NO_REPORT).split() == ["400"]
    until(monitoring, f"trainer_refused_reports_total{mine}", {chief: 1.0})
    trainer("delete", "--namespace", namespace.name, "digits", "--volumes")

    path = tmp_path / "monitor.yaml"
    path.write_text(yaml.safe_dump(spec(**found, kind="podmonitor")))
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
