"""A job of several modules that reads volumes of data, in pods."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kind.cluster import KubernetesJob, Namespace, kubectl
from tests.kind.test_waiting import until
from tests.local import specs
from tests.tools.harness import TRAINER

pytestmark = pytest.mark.part("kubernetes")

CLAIM: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "records"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}},
}
TRY = "import os, pathlib; print(sorted(os.listdir('/data'))); pathlib.Path('/data/train/x').touch()"


def filled(namespace: Namespace, job: KubernetesJob, records: Path) -> None:
    """Puts the records into the claim, by a pod with the job's own settings."""
    pod: dict[str, Any] = next(m for m in job.manifests if m["kind"] == "Job")["spec"]["template"]["spec"]
    task = {key: pod["containers"][0][key] for key in ("image", "resources", "securityContext")}
    mounts = [{"name": "records", "mountPath": "/tmp"}]
    task |= {"name": "task", "command": ["sleep", "infinity"], "volumeMounts": mounts}
    volume = {"name": "records", "persistentVolumeClaim": {"claimName": "records"}}
    spec = {**pod, "containers": [task], "volumes": [volume], "subdomain": "", "terminationGracePeriodSeconds": 0}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "writer"}, "spec": spec}
    namespace.kubectl("apply", "--filename=-", text=json.dumps(manifest))
    namespace.kubectl("wait", "--for=condition=ready", "pod/writer")
    namespace.kubectl("cp", str(records), "writer:/tmp/records")
    namespace.kubectl("delete", "pod", "writer")


def resume(namespace: Namespace, job: KubernetesJob) -> None:
    for name in job.jobs:
        namespace.kubectl("patch", "job", name, "--patch", '{"spec": {"suspend": false}}')


def test_code_and_a_claim_with_data_are_in_every_pod(namespace: Namespace, tmp_path: Path) -> None:
    expected = specs.records(tmp_path / "records")
    namespace.kubectl("apply", "--filename=-", text=json.dumps(CLAIM))
    places = {split: {"claim": "records", "sub_path": f"records/{split}"} for split in ("train", "test")}
    data: dict[str, Any] = {split: {"kubernetes": each} for split, each in places.items()}
    data["test"]["copy"] = "node"
    # Long enough to look into a pod.
    spec = specs.shipped(specs.parameter_server, data, train={"steps": None, "epochs": 500})
    job = namespace.submit_spec(tmp_path, {**spec, "kubernetes": {"suspend": True}})
    filled(namespace, job, tmp_path / "records")
    resume(namespace, job)
    job.until("a worker is there", lambda s: s["tasks"]["worker:0"]["state"] != "absent")
    worker = job.newest("worker", 0)
    tried = namespace.kubectl("exec", worker, "--", "sh", "-c", f'python3 -c "{TRY}" 2>&1 || true')
    assert "['mnist.npz', 'test', 'train']" in tried
    assert "data.test is read from the copy /cache/test-" in namespace.kubectl("logs", worker)
    assert "Read-only file system" in tried
    job.wait()
    result = json.loads(job.file(".trainer/result.json"))
    assert result["test_sum"] == pytest.approx(expected, rel=1e-12)
    assert result["test_outputs"] == 3


def test_folders_of_the_nodes_are_data_and_a_missing_one_is_named(namespace: Namespace, tmp_path: Path) -> None:
    expected = specs.records(tmp_path / "records")
    folder = f"/var/lib/{namespace.name}"
    nodes = [name.removeprefix("node/") for name in kubectl("get", "nodes", "--output=name").split()]
    for node in nodes:
        subprocess.run(["docker", "cp", str(tmp_path / "records"), f"{node}:{folder}"], check=True, timeout=60)
    data = {split: {"kubernetes": {"host_path": f"{folder}/{split}"}} for split in ("train", "test")}
    spec = specs.shipped(specs.mirrored, data)
    (tmp_path / "refused.yaml").write_text(yaml.safe_dump(spec))
    command = [*TRAINER, "submit", "--namespace", namespace.name, "--dry-run", str(tmp_path / "refused.yaml")]
    warned = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr
    assert 'trainer: warning: Kubernetes: would violate PodSecurity "restricted:latest": ' in warned
    kubectl("label", "--overwrite", "namespace", namespace.name, "pod-security.kubernetes.io/enforce=privileged")
    job = namespace.submit_spec(tmp_path, spec)
    data["train"] = {"kubernetes": {"host_path": f"{folder}/none"}}
    namespace.submit_spec(tmp_path, {**spec, "data": data, "name": "missing"})
    job.wait()
    assert json.loads(job.file(".trainer/result.json"))["test_sum"] == pytest.approx(expected, rel=1e-12)
    why = "hostPath type check failed: "
    status = until(namespace, "missing", lambda s: why in s["tasks"]["chief:0"]["reason"])
    assert f"{folder}/none is not a directory" in status["tasks"]["chief:0"]["reason"]
