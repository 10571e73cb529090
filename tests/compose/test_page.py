"""The page of a job in containers, through relays in that of its chief: live, over the chief's death, after its end."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from pathlib import Path

from tests.compose.project import Project, run_in, trainer
from tests.local import specs
from tests.tools.opened import opened, require_that_a_second_one_ends
from trainer.job.errors import Exit
from trainer.targets.page import NONE

STEPS = 3000
GATE = "/workspace/runs/paged/go"


def last_step(project: Project) -> int:
    step: int = json.loads(project.file("metrics.jsonl").splitlines()[-1])["step"]
    return step


def relays(project: Project) -> list[str]:
    """The processes of open connections."""
    top = project.container("worker:0").top(ps_args="-o pid,args")
    return [words[1] for words in top["Processes"] if "relay" in words[1]]


def test_the_page_of_a_job_in_containers(tmp_path: Path) -> None:
    spec = specs.gated(STEPS, GATE)
    words = (str(tmp_path / "job.yaml"), "--target", "compose")
    with Project(tmp_path, {**spec, "name": "paged"}) as project, opened(*words) as page:
        found = page.require_live(lambda: last_step(project), {"worker:0", "worker:1"}, 1)
        require_that_a_second_one_ends(*words)
        deadline = time.monotonic() + 20
        while relays(project):
            assert time.monotonic() < deadline, f"connections are left: {relays(project)}"
            time.sleep(0.1)
        project.kill("worker:0")
        again = page.until_next_chief(found)
        assert run_in(project.container("worker:0"), f"open({GATE!r}, 'w')")[0] == 0
        code, out, err = page.until_it_ends()
        assert (code, out, err.splitlines()[-1]) == (Exit.OK, "", "trainer: paged is over: done")
        assert {line.partition(": ")[2].partition(": ")[0] for line in err.splitlines()[:-1]} <= {
            "waiting for the chief"
        }
        assert project.wait() == 0, project.output
        ended = trainer("ui", *words)
        assert ended.returncode == Exit.TARGET
        advice = re.fullmatch(
            r"trainer: paged: has ended \(done\), and its files are in its volume: `(.+)`, then `trainer ui (.+)`\n",
            ended.stderr,
        )
        assert advice, ended.stderr
        subprocess.run(shlex.split(advice[1]), check=True, cwd=tmp_path, timeout=60)
    with opened(str(tmp_path / advice[2])) as page:
        kept = page.state()
        assert (kept["live"], kept["status"]["phase"], kept["status"]["step"]) == (False, "done", STEPS)
        assert kept["history"]["marks"][: len(again["history"]["marks"])] == again["history"]["marks"]


def test_a_job_without_a_page_says_so(tmp_path: Path) -> None:
    spec = {**specs.mirrored(steps=30_000, workers=1, workload=specs.PACED), "name": "pageless", "page": "none"}
    with Project(tmp_path, spec) as project:
        project.until("it answers", lambda status: status)
        ended = trainer("ui", str(tmp_path / "job.yaml"), "--target", "compose")
        assert (ended.returncode, ended.stdout, ended.stderr) == (Exit.USER, "", f"trainer: pageless: {NONE}\n")
