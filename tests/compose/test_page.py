"""The page of a job in containers, through relays in that of its chief: live, over the chief's death, after its end."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.compose.project import Project, trainer
from tests.local import specs
from tests.opened import opened
from trainer.job.errors import Exit

STEPS = 1500


def relays(project: Project) -> list[str]:
    """The processes of open connections."""
    top = project.container("worker:0").top(ps_args="-o pid,args")
    return [words[1] for words in top["Processes"] if "relay" in words[1]]


def test_the_page_of_a_job_in_containers(tmp_path: Path) -> None:
    train = {"log_steps": 5, "checkpoint_steps": 50}
    spec = {**specs.mirrored(steps=STEPS, workload=specs.PACED, train=train), "name": "paged"}
    words = (str(tmp_path / "job.yaml"), "--target", "compose")
    with Project(tmp_path, spec) as project, opened(*words) as page:
        page.until("steps", lambda found: (found["status"].get("step") or 0) > 50)
        before = json.loads(project.file("metrics.jsonl").splitlines()[-1])["step"]
        found = page.state()
        after = json.loads(project.file("metrics.jsonl").splitlines()[-1])["step"]
        assert found["live"]
        assert before - 5 <= found["status"]["step"] <= after + 5
        assert set(found["status"]["tasks"]) == {"worker:0", "worker:1"}
        steps = page.steps(3)
        assert before < steps[0] < steps[-1]
        page.require_files(1)
        page.until_lines(lambda lines: {task for task, _ in lines} == {"worker:0", "worker:1"})
        with opened(*words) as other:
            assert other.end() == (Exit.OK, "", "")
        deadline = time.monotonic() + 20
        while relays(project):
            assert time.monotonic() < deadline, f"connections are left: {relays(project)}"
            time.sleep(0.1)
        project.kill("worker:0")
        again = page.until(
            "the next chief makes steps",
            lambda found: found["status"]["generation"] > 1 and found["status"].get("loss"),
        )
        kept = again["history"]["job"]
        assert kept["time"][0] == found["history"]["job"]["time"][0], "the history begins where it began"
        assert page.until_it_ends() == (Exit.OK, "", "trainer: paged is over: done\n")
        assert project.wait() == 0, project.output
        ended = trainer("ui", *words)
        assert ended.returncode == Exit.TARGET
        assert ended.stderr.startswith("trainer: paged: has ended (done), and its files are in its volume: ")
        assert ended.stderr.count("\n") == 1
