"""`trainer submit|status|logs|delete`: in every phase of a job, and one-line errors for what cannot be done."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kind.cluster import Namespace, kubectl, there, trainer
from tests.local import specs
from trainer.job.errors import Exit

pytestmark = pytest.mark.part("kubernetes")

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "mine"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest.fixture
def spec_file(tmp_path: Path) -> Any:
    def write(**more: Any) -> str:
        (tmp_path / "job.yaml").write_text(yaml.safe_dump({**specs.mirrored(steps=300, workload=specs.PACED), **more}))
        return str(tmp_path / "job.yaml")

    return write


def test_a_secret_is_kept_and_that_of_another_stays(namespace: Namespace, spec_file: Any) -> None:
    space = ("--namespace", namespace.name)
    namespace.kubectl("create", "secret", "generic", "mine", "--from-literal=secret=x")
    for _ in range(2):
        trainer("submit", *space, spec_file(kubernetes={"suspend": True}))
        kept = namespace.get("secrets")
        namespace.kubectl("delete", "jobs", "--all")
    trainer("submit", *space, spec_file(kubernetes={"suspend": True}))
    assert namespace.get("secrets") == kept
    trainer("delete", *space, "digits", "--volumes")
    assert [each["metadata"]["name"] for each in namespace.get("secrets")] == ["mine"]


def test_suspend_and_resume_keep_the_steps(namespace: Namespace, spec_file: Any) -> None:
    job = namespace.submit(Path(spec_file(train={"steps": 1500, "batch_size": 32, "learning_rate": 1e-3})))
    step = job.until_step(100)["step"]
    for suspended in (True, False):
        for name in job.jobs:
            namespace.kubectl("patch", "job", name, "--patch", json.dumps({"spec": {"suspend": suspended}}))
        if suspended:
            namespace.kubectl("wait", "--for=delete", "pod", "--all", "--timeout=60s", seconds=70)
    job.wait()
    resumed = int(job.log().split("resume_step=")[1].split()[0])
    assert resumed >= step
    assert "done: steps=1500 " in job.log()


def test_a_name_is_one_jobs(namespace: Namespace, spec_file: Any) -> None:
    space = ("--namespace", namespace.name)
    trainer("submit", *space, spec_file(kubernetes={"suspend": True}))
    before = there(namespace)
    again = ("submit", *space, spec_file(kubernetes={"suspend": True}))
    assert "digits: already exists; next: " in trainer(*again)
    namespace.kubectl("delete", "secret", "digits-report-secret")
    namespace.kubectl("delete", "service", "digits")
    printed = trainer(*again)
    assert "digits: already exists; made again: secret/digits-report-secret, service/digits; next: " in printed
    printed = trainer(
        "submit", *space, spec_file(kubernetes={"suspend": True}), "--set", "train.steps=301", code=Exit.USER
    )
    assert f"name: 'digits': is taken in namespace {namespace.name} by another job" in printed
    assert "train.steps: 300 there, 301 here" in printed
    assert printed.count("\n") == 1
    assert there(namespace) == before
    namespace.kubectl("create", "job", "other-chief", "--image=trainer:cpu")
    printed = trainer("submit", *space, spec_file(name="other"), code=Exit.USER)
    assert "is taken" in printed
    assert "by a Job that trainer did not create" in printed
    namespace.kubectl("apply", "--filename=-", text=yaml.safe_dump(CLAIM))
    before = there(namespace)
    printed = trainer("submit", *space, spec_file(name="mine"), code=Exit.USER)
    assert "by a PersistentVolumeClaim that trainer did not create; name it in kubernetes.volume.claim" in printed
    assert there(namespace) == before
    assert [
        "labels" in each["metadata"]
        for each in namespace.get("persistentvolumeclaims")
        if each["metadata"]["name"] == "mine"
    ] == [False]


def test_what_a_user_may_not_is_named(namespace: Namespace, spec_file: Any, tmp_path: Path) -> None:
    namespace.kubectl("create", "serviceaccount", "guest")
    namespace.kubectl("create", "role", "reader", "--verb=get,list", "--resource=jobs,pods,configmaps")
    namespace.kubectl("create", "rolebinding", "guest", "--role=reader", f"--serviceaccount={namespace.name}:guest")
    token = namespace.kubectl("create", "token", "guest").strip()
    config = tmp_path / "config"
    config.write_text(Path(os.environ["KUBECONFIG"]).read_text())
    options = ["--kubeconfig", str(config), "config"]
    kubectl(*options, "set-credentials", "guest", f"--token={token}")
    kubectl(*options, "set-context", "--current", "--user=guest", f"--namespace={namespace.name}")
    printed = trainer("submit", spec_file(), environ={"KUBECONFIG": str(config)}, code=Exit.TARGET)
    assert printed.count("\n") == 1
    assert 'cannot patch resource "configmaps"' in printed
    assert there(namespace) == []


@pytest.mark.parametrize(
    ("environ", "words", "line"),
    [
        ({"KUBECONFIG": "/nowhere"}, [], "no Kubernetes to connect to"),
        (
            {},
            ["--namespace", "nowhere"],
            "namespace: 'nowhere': is not on this cluster; `kubectl create namespace nowhere`",
        ),
    ],
    ids=["no cluster", "no namespace"],
)
def test_what_is_not_there_is_named(spec_file: Any, environ: Any, words: Any, line: str) -> None:
    printed = trainer("submit", spec_file(), *words, environ=environ, code=Exit.TARGET)
    assert printed.startswith(f"trainer: {line}")
    assert printed.count("\n") == 1


def test_a_server_that_is_gone_is_named(spec_file: Any, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(Path(os.environ["KUBECONFIG"]).read_text())
    current = kubectl(
        "--kubeconfig", str(config), "config", "view", "--minify", "--output=jsonpath={.clusters[0].name}"
    )
    kubectl("--kubeconfig", str(config), "config", "set-cluster", current, "--server=https://127.0.0.1:1")
    for words in (["submit", spec_file()], ["status"], ["logs", "digits"], ["delete", "digits"]):
        printed = trainer(*words, environ={"KUBECONFIG": str(config)}, code=Exit.TARGET)
        assert printed.startswith("trainer: no Kubernetes answers at https://127.0.0.1:1")
        assert printed.count("\n") == 1
