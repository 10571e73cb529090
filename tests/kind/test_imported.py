"""A TFJob that is imported and submitted runs on Kubernetes with what its pods had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kind.cluster import Namespace, trainer

pytestmark = pytest.mark.part("kubernetes")

PROGRAM = """
import json, os, sys, time, urllib.request
task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
found = [open(path).read().strip() for path in ("/etc/job/words", "/input/fetched", "/etc/token/token")]
found += [os.environ[key] for key in ("TOKEN", "REGION", "RATE", "ENDPOINT", "WORDS")]
open("/dev/shm/x", "w").write("x")
assert sys.argv[1:] == ["--rate=0.5", "http://" + os.environ["NODE"]], sys.argv
print(task, "|".join(found), flush=True)
if task == "chief":
    deadline = time.monotonic() + 60
    while True:  # the sidecar may still start
        try:
            print("sidecar", urllib.request.urlopen("http://127.0.0.1:8000/").status, flush=True)
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
else:
    time.sleep(3600)
"""
SECRET = {"secretKeyRef": {"name": "credentials", "key": "token"}}
REGION = {"configMapKeyRef": {"name": "site", "key": "region"}}


def replica(**more: Any) -> dict[str, Any]:
    env = [{"name": "RATE", "value": "0.5"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
           {"name": "ENDPOINT", "value": "s3://$(RATE)/x"}, {"name": "TOKEN", "valueFrom": SECRET},
           {"name": "REGION", "valueFrom": REGION}]  # fmt: skip
    names = {"words": "/etc/job", "input": "/input", "shm": "/dev/shm", "token": "/etc/token"}
    container = {
        "name": "tensorflow",
        "image": "trainer:cpu",
        "command": ["python3", "-c", PROGRAM],
        "args": ["--rate=$(RATE)", "http://$(NODE)"],
        "env": env,
        "envFrom": [{"configMapRef": {"name": "words"}}],
        "ports": [{"name": "tfjob-port", "containerPort": 2222}],
        "resources": {"limits": {"cpu": "200m", "memory": "512Mi"}},
        "volumeMounts": [{"name": name, "mountPath": place} for name, place in names.items()],
    }
    fetch = {
        "name": "fetch",
        "image": "trainer:cpu",
        "command": ["sh", "-c", "echo fetched > /input/fetched"],
        "volumeMounts": [{"name": "input", "mountPath": "/input"}],
    }
    volumes = [
        {"name": "words", "configMap": {"name": "site", "items": [{"key": "region", "path": "words"}]}},
        {"name": "token", "secret": {"secretName": "credentials"}},
        {"name": "input", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
    ]
    spec = {"containers": [container, *more.pop("beside", [])], "initContainers": [fetch], "volumes": volumes, **more}
    metadata = {"annotations": {"example.com/note": "kept"}, "labels": {"team": "vision"}}
    return {"restartPolicy": "ExitCode", "template": {"metadata": metadata, "spec": spec}}


def test_its_pods_have_what_they_had_and_end_with_the_chief(namespace: Namespace, tmp_path: Path) -> None:
    server = {"name": "server", "image": "trainer:cpu", "command": ["python3", "-m", "http.server", "8000"]}
    types = {
        "Master": replica(beside=[server]),
        "Worker": {**replica(nodeSelector={"kubernetes.io/os": "linux"}), "replicas": 2},
        "PS": replica(tolerations=[{"key": "example.com/spot", "operator": "Exists"}]),
    }
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "imported"}}
    tfjob, spec = tmp_path / "tfjob.yaml", tmp_path / "job.yaml"
    tfjob.write_text(yaml.safe_dump({**job, "spec": {"tfReplicaSpecs": types}}))
    namespace.kubectl("create", "configmap", "site", "--from-literal=region=north")
    namespace.kubectl("create", "configmap", "words", "--from-literal=WORDS=two words")
    namespace.kubectl("create", "secret", "generic", "credentials", "--from-literal=token=hidden")
    spec.write_text(trainer("import", str(tfjob)))
    running = namespace.submit(spec)
    running.wait()
    running.wait_for_the_others()
    for task_type in ("chief", "worker", "ps"):
        assert f"{task_type} north|fetched|hidden|hidden|north|0.5|s3://0.5/x|two words" in running.log(task_type)
    assert "sidecar 200" in running.log()
    assert [len(running.pods(task_type)) for task_type in ("chief", "worker", "ps")] == [1, 2, 1]
    (ps,), worker = running.pods("ps"), running.pods("worker")[0]
    assert worker["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert {"key": "example.com/spot", "operator": "Exists"} in ps["spec"]["tolerations"]
    assert ps["metadata"]["annotations"]["example.com/note"] == "kept"
    assert ps["metadata"]["labels"]["team"] == "vision"
