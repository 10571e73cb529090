"""The page of a job in pods, through the API server's port-forward: live, while its chief moves, and after its end."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kind.cluster import KubernetesJob, Namespace, trainer
from tests.local import specs
from tests.tools.opened import opened, require_that_a_second_one_ends
from trainer.job.errors import Exit

STEPS = 3000
GATE = "/workspace/runs/digits/go"


def last_step(job: KubernetesJob) -> int:
    curve = job.space.kubectl("exec", job.newest("chief", 0), "--", "cat", f"/workspace/runs/{job.name}/metrics.jsonl")
    step: int = json.loads(curve.splitlines()[-1])["step"]
    return step


def test_the_page_of_a_job_in_pods(namespace: Namespace, tmp_path: Path) -> None:
    job = namespace.submit_spec(tmp_path, specs.gated(STEPS, GATE))
    words = (job.name, "--namespace", namespace.name)
    with opened(*words) as page:
        found = page.require_live(lambda: last_step(job), {"chief:0", "worker:0"}, 4)
        require_that_a_second_one_ends(*words)
        namespace.kubectl("delete", "pod", job.newest("chief", 0), "--wait=false", "--force", "--grace-period=0")
        page.until_next_chief(found)
        namespace.kubectl("exec", job.newest("chief", 0), "--", "touch", GATE)
        code, out, err = page.until_it_ends()
        assert (code, out, err.splitlines()[-1]) == (Exit.OK, "", f"trainer: {job.name} is over: done")
    job.wait()
    line = trainer("ui", *words, code=Exit.TARGET)
    assert line.startswith(f"trainer: {job.name}: has ended (done), and its files are in its volume: ")
    assert line.count("\n") == 1
