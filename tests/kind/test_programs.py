"""Programs of the user's own in pods; each task type is killed once."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kind.cluster import ROOT, KubernetesJob, Namespace, kubectl
from tests.kind.test_waiting import until

TF_KERAS = ROOT / ".venv-peers" / "tf_keras"


def submit(namespace: Namespace, folder: Path, name: str, *words: str, **more: Any) -> KubernetesJob:
    """A job of examples/programs with more words."""
    shutil.copy(ROOT / "examples" / "programs" / f"{name.replace('-', '_')}.py", folder)
    spec = yaml.safe_load((ROOT / "examples" / "programs" / f"{name}.yaml").read_text())
    return namespace.submit_spec(folder, {**spec, "program": [*spec["program"], *words], **more})


def trains(job: KubernetesJob, generation: int) -> bool:
    """Whether the chief has printed a step in this generation or a later one."""
    log = job.space.kubectl("logs", job.newest(job.chief, 0), check=False)
    _, formed, after = re.split(r"generation (\d+) formed", f"generation 0 formed{log}")[-3:]
    return int(formed) >= generation and bool(re.search(r"step \d+ of|Epoch [2-9]/", after))


def delete(job: KubernetesJob, task_type: str, index: int, generation: int) -> None:
    """Deletes a task's pod without its grace period, once the generation trains, and waits for the next pod."""
    job.until(f"generation {generation} trains", lambda _: trains(job, generation))
    before = job.newest(task_type, index)
    job.space.kubectl("delete", "pod", before, "--wait=false", "--force", "--grace-period=0")
    job.until(f"{task_type}:{index} is back", lambda _: job.newest(task_type, index) not in ("", before))


def succeeded(job: KubernetesJob, accuracy: float, generations: int) -> None:
    job.wait()
    log = job.space.kubectl("logs", job.newest(job.chief, 0))
    (reached,) = re.findall(r"test accuracy (0\.\d+)", log)
    assert float(reached) >= accuracy
    assert f"generation {generations} formed" in log
    status = job.space.status(job.name)
    assert status["phase"] == "done"
    job.wait_for_the_others()


@pytest.mark.slow
def test_between_graph_replication(namespace: Namespace, tmp_path: Path) -> None:
    job = submit(namespace, tmp_path, "between-graph", "--steps=6000", "--checkpoint_steps=200")
    assert set(job.jobs) == {"between-graph-worker", "between-graph-ps"}
    delete(job, "worker", 2, generation=1)  # which starts again alone
    delete(job, "ps", 0, generation=1)
    delete(job, "worker", 0, generation=2)
    succeeded(job, 0.97, generations=3)
    assert len({pod["spec"]["nodeName"] for pod in job.pods()}) == 1, "one node holds the volume"


@pytest.mark.slow
def test_a_coordinator_with_servers(namespace: Namespace, tmp_path: Path) -> None:
    job = submit(namespace, tmp_path, "coordinator", "--steps=2500")
    delete(job, "worker", 1, generation=1)  # which starts again alone
    delete(job, "ps", 0, generation=1)
    delete(job, "chief", 0, generation=2)
    succeeded(job, 0.9, generations=3)


@pytest.mark.slow
@pytest.mark.part("programs")
@pytest.mark.skipif(not TF_KERAS.exists(), reason="make programs-setup installs tf_keras")
def test_keras_fit_of_keras_2(namespace: Namespace, tmp_path: Path) -> None:
    folder = f"/var/lib/{namespace.name}"
    for node in kubectl("get", "nodes", "--output=name").split():  # a container of that name
        place = f"{node.removeprefix('node/')}:{folder}"
        subprocess.run(["docker", "cp", "--quiet", f"{TF_KERAS}/.", place], check=True, timeout=60)
    kubectl("label", "--overwrite", "namespace", namespace.name, "pod-security.kubernetes.io/enforce=privileged")
    job = submit(
        namespace, tmp_path, "multi-worker-fit", "--epochs=6", "--steps_per_epoch=30",
        env={"TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": "/data/keras"},
        data={"keras": {"kubernetes": {"host_path": folder}}},
    )  # fmt: skip
    delete(job, "worker", 1, generation=1)
    delete(job, "chief", 0, generation=2)
    succeeded(job, 0.9, generations=3)


def test_a_secret_that_is_not_there_is_named_by_status(namespace: Namespace, tmp_path: Path) -> None:
    submit(namespace, tmp_path, "print-config", kubernetes={"env_from": [{"secretRef": {"name": "s3"}}]})
    why = 'CreateContainerConfigError: secret "s3" not found'
    until(namespace, "print-config", lambda status: why in status["tasks"]["ps:0"]["reason"])
