"""A real Prometheus on the cluster, for test_tour.py.

Debian's Prometheus has no discovery of pods: the test reads them, with the rights of Prometheus' service account, and
hands them over as targets with the labels that the discovery would give them. Everything else of
k8s/monitoring/prometheus.yaml is used as it is.
"""

from __future__ import annotations

import contextlib
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

import yaml

from tests.kind.cluster import ROOT, Namespace, kubectl

IMAGE = "prometheus:test"
DOCKERFILE = """
FROM debian:trixie-slim
COPY prometheus /usr/bin/prometheus
USER 1000:1000
ENTRYPOINT ["/usr/bin/prometheus", "--config.file=/etc/prometheus/prometheus.yaml", "--storage.tsdb.path=/tmp/data"]
"""
MONITORING = ROOT / "k8s/monitoring"


@contextlib.contextmanager
def monitoring(folder: Path) -> Iterator[Namespace]:
    """A namespace with Prometheus, which reads k8s/monitoring, and a pod `scraper` with Python."""
    program = shutil.which("prometheus")
    assert program, "prometheus is missing: apt install prometheus"
    shutil.copy(program, folder / "prometheus")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    subprocess.run(["docker", "build", "--quiet", "--tag", IMAGE, folder], check=True, timeout=300)
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
    space.kubectl("run", "scraper", "--image=trainer:cpu", "--labels=app=prometheus", "--command", "--", "sleep", "900")
    space.kubectl("run", "other", "--image=trainer:cpu", "--command", "--", "sleep", "900")
    space.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s", seconds=70)
    try:
        yield space
    finally:
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


def scraped(space: Namespace, expression: str, wanted: dict[str, float]) -> None:
    deadline = time.monotonic() + 60
    while (found := query(space, expression)) != wanted:
        assert time.monotonic() < deadline, (expression, found, space.kubectl("logs", "prometheus", "--tail=20"))
        time.sleep(1)
