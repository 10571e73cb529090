"""Deaths of pods."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.kind.cluster import Namespace, render
from tests.local import specs

STEPS = 3000


@pytest.mark.parametrize("task", ["worker", "ps", "chief"])
@pytest.mark.parametrize("force", [False, True], ids=["stopped", "killed"])
def test_a_deleted_pod_comes_back_and_the_job_ends_at_its_step(
    namespace: Namespace, tmp_path: Path, task: str, force: bool
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(specs.parameter_server(steps=STEPS)))
    job = namespace.apply(render(path))
    job.until_step(200)
    pod = job.pods(task)[0]["metadata"]["name"]
    namespace.kubectl("delete", "pod", pod, "--wait=false", *(["--force", "--grace-period=0"] if force else []))
    job.wait()
    assert f"done: steps={STEPS} " in job.log()
    job.wait_for_the_others()
