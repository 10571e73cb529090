"""Jobs that are disturbed: deleted and evicted pods, killed processes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.kind.cluster import KubernetesJob, Namespace
from tests.local import specs

KILL = "import os, signal; os.kill({}, signal.SIGKILL)"
# Stops the chief's child while a checkpoint is being written.
STOP_IN_A_CHECKPOINT = """
import os, signal, time
from pathlib import Path
end = time.monotonic() + 60
while not (found := list(Path("/workspace/runs").glob("*/checkpoints/.tmp-*/*"))):
    assert time.monotonic() < end, "no checkpoint was begun"
os.kill({}, signal.SIGSTOP)
print(found[0].parent.name)
"""


def inside(job: KubernetesJob, task_type: str, program: str) -> str:
    """What a Python program prints that runs in a task's pod."""
    return job.space.kubectl("exec", f"job/{job.name}-{task_type}", "--", "python3", "-c", program)


@pytest.mark.parametrize("force", [pytest.param(False, marks=pytest.mark.slow), True], ids=["stopped", "killed"])
def test_deleted_pods_come_back_and_the_job_ends_at_its_step(namespace: Namespace, tmp_path: Path, force: bool) -> None:
    steps = 3000
    # A chief that is quick enough to stop the job fails two pods of workers, of which Kubernetes replaces the next one
    # 40 s after its end (10, 20, 40 s of a Job's backoff): the chief must wait for it for longer.
    spec = specs.parameter_server(steps=steps, workload=specs.PACED, deadlines={"chief_lost": 120})
    job = namespace.submit_spec(tmp_path, spec)
    generation = job.until_step(100)["generation"]
    how = ["--force", "--grace-period=0"] if force else []
    for task in ("ps", "chief"):
        namespace.kubectl("delete", "pod", job.newest(task), "--wait=false", *how)
        generation = job.until_formed_again(generation)["generation"]
    before = job.newest("worker")
    namespace.kubectl("delete", "pod", before, "--wait=false", *how)
    job.wait()
    assert f"done: steps={steps} " in job.log()
    assert "resume_step=0" not in job.log()
    job.wait_for_the_others()
    assert job.newest("worker") != before


def test_a_killed_child_and_a_chief_evicted_in_a_checkpoint(namespace: Namespace, tmp_path: Path) -> None:
    # A model whose checkpoint takes a moment to write.
    mnist = {"workload": specs.PACED, "settings": {"model": "mnist"}, "dataset": "mnist"}
    spec = {**specs.mirrored(steps=600, train={"checkpoint_steps": 20}), **mnist}
    job = namespace.submit_spec(tmp_path, spec)
    status = job.until("a checkpoint", lambda s: s["last_checkpoint"])
    inside(job, "worker", KILL.format(status["tasks"]["worker:0"]["child_pid"]))
    generation = job.until_formed_again(status["generation"])["generation"]
    complete = job.until("a new checkpoint", lambda s: s["generation"] == generation and s["last_checkpoint"])
    cut_off = inside(job, "chief", STOP_IN_A_CHECKPOINT.format(job.child_pid("chief:0")))
    pod = job.newest("chief")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace.name}}
    path = f"/api/v1/namespaces/{namespace.name}/pods/{pod}/eviction"
    namespace.kubectl("create", "--raw", path, "--filename=-", text=json.dumps(eviction))
    job.wait()
    assert "done: steps=600 " in job.log()
    resumed = re.findall(r"resume_step=(\d+)", job.log())
    step = int(cut_off.split("-")[2])
    assert int(resumed[-1]) in range(complete["last_checkpoint"], step), (cut_off, job.log())
