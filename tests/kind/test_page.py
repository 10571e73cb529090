"""The page of a job in pods, through the API server's port-forward: live, while its chief moves, and after its end."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kind.cluster import KubernetesJob, Namespace, trainer
from tests.local import specs
from tests.opened import opened
from trainer.job.errors import Exit

STEPS = 3000
GATE = "/workspace/runs/digits/go"


def last_step(job: KubernetesJob) -> int:
    """That of the learning curve, which the chief's child writes."""
    curve = job.space.kubectl("exec", job.newest("chief", 0), "--", "cat", f"/workspace/runs/{job.name}/metrics.jsonl")
    step: int = json.loads(curve.splitlines()[-1])["step"]
    return step


def test_the_page_of_a_job_in_pods(namespace: Namespace, tmp_path: Path) -> None:
    train = {"log_steps": 5, "checkpoint_steps": 50}
    spec = specs.mirrored(steps=STEPS, workload=specs.GATED, settings={"gate": GATE}, train=train)
    job = namespace.submit_spec(tmp_path, spec)
    words = (job.name, "--namespace", namespace.name)
    with opened(*words) as page:
        page.until("steps", lambda found: (found["status"].get("step") or 0) > 50)
        before = last_step(job)
        found = page.until("the steps that were made", lambda found: found["status"]["step"] >= before)
        assert found["live"]
        assert found["history"]["job"]["step"][-1] <= found["status"]["step"] <= last_step(job) + 5
        assert set(found["status"]["tasks"]) == {"chief:0", "worker:0"}
        steps = page.steps(3)
        assert before < steps[0] < steps[-1]
        page.require_files(4)
        page.until_lines(lambda lines: {task for task, _ in lines} == {"chief:0", "worker:0"})
        with opened(*words) as other:
            code, out, err = other.end()
        assert (code, out) == (Exit.OK, ""), err
        assert "Traceback" not in err
        namespace.kubectl("delete", "pod", job.newest("chief", 0), "--wait=false", "--force", "--grace-period=0")
        again = page.until(
            "the next chief makes steps",
            lambda found: found["status"]["generation"] > 1 and found["status"].get("loss"),
        )
        kept = again["history"]["job"]
        assert kept["time"][0] == found["history"]["job"]["time"][0], "the history begins where it began"
        namespace.kubectl("exec", job.newest("chief", 0), "--", "touch", GATE)
        code, out, err = page.until_it_ends()
        assert (code, out, err.splitlines()[-1]) == (Exit.OK, "", f"trainer: {job.name} is over: done")
    job.wait()
    line = trainer("ui", *words, code=Exit.TARGET)
    assert line.startswith(f"trainer: {job.name}: has ended (done), and its files are in its volume: ")
    assert line.count("\n") == 1
