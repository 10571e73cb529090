"""One job in pods, from its submit to its delete, at which these tests look in turn: chief, two workers, evaluator.

Each test needs those before it: `pytest tests/kind/test_tour.py`, never one of them alone. Those that change nothing
come first; then the chief is evicted, and the job ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kind.cluster import EVERYTHING, JOB_SECONDS, KubernetesJob, Namespace, knock, kubectl, there, trainer
from tests.kind.monitoring import discover, monitoring, scraped
from tests.kind.test_waiting import until
from tests.local import specs
from tests.tools.debugged import Debugged
from tests.tools.documents import commands
from tests.tools.harness import TRAINER
from tests.tools.opened import Opened, opened, require_that_a_second_one_ends
from trainer.api import run as runs
from trainer.job.errors import Exit
from trainer.supervisor.chief import network_policy

STEPS = specs.TOUR_STEPS
GATE = "/workspace/runs/digits/go"
TASKS = {"chief:0", "worker:0", "worker:1", "evaluator:0"}
FETCH = """
import sys, urllib.error, urllib.request
def status(path, data=None):
    try:
        return urllib.request.urlopen(sys.argv[1] + path, data, timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code
print(status("/metrics"), status("/status"), status("/report", b"{}"))
"""
NO_REPORT = """
import urllib.error, urllib.request
try:
    urllib.request.urlopen("http://digits-chief-0.digits:3222/report", b"{}", timeout=5)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@dataclass
class Tour:
    space: Namespace
    monitoring: Namespace
    path: Path
    """Of the spec."""
    job: KubernetesJob
    following: dict[str, subprocess.Popen[str]]
    """`trainer logs --follow` and `trainer status --watch`, from before a pod runs until the job's end."""
    printed: dict[str, str] = field(default_factory=dict)
    """What both have printed, once they have ended."""

    @property
    def words(self) -> tuple[str, ...]:
        return ("--namespace", self.space.name)


@pytest.fixture(scope="module")
def tour(tour_namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tour]:
    folder, space = tmp_path_factory.mktemp("tour"), ("--namespace", tour_namespace.name)
    with monitoring(folder) as prometheus:
        metrics = {"namespace": prometheus.name, "pods": {"app": "prometheus"}}
        path = folder / "job.yaml"
        path.write_text(yaml.safe_dump({**specs.tour(GATE), "kubernetes": {"suspend": True, "metrics": metrics}}))
        assert "would be applied" in trainer("submit", *space, str(path), "--dry-run")
        assert there(tour_namespace) == []
        job = tour_namespace.submit(path)
        words = {"logs": ("--follow",), "status": ("--watch", "-o", "json")}
        following = {
            name: subprocess.Popen([*TRAINER, name, *space, "digits", *more], stdout=subprocess.PIPE, text=True)
            for name, more in words.items()
        }
        try:
            yield Tour(tour_namespace, prometheus, path, job, following)
        finally:
            for process in following.values():
                process.kill()
                process.communicate()


def test_a_suspended_job_waits_and_says_why(tour: Tour) -> None:
    status = tour.space.status("digits")
    assert status["phase"] == "suspended"
    assert {row["reason"] for row in status["tasks"].values()} == {"the Job is suspended"}
    assert "digits: already exists" in trainer("submit", *tour.words, str(tour.path))
    for job in tour.job.jobs:
        tour.space.kubectl("patch", "job", job, "--patch", '{"spec": {"suspend": false}}')
    until(tour.space, "digits", lambda s: {row["state"] for row in s["tasks"].values()} == {"running"})
    tour.job.until_step(1)


def test_status_names_the_nodes_of_the_tasks_that_run(tour: Tour) -> None:
    rows = tour.space.status("digits")["tasks"]
    assert set(rows) == TASKS
    nodes = kubectl("get", "nodes", "--output=name").replace("node/", "").split()
    assert {row["node"] for row in rows.values()} <= set(nodes)


def test_stacks_are_of_each_task(tour: Tour) -> None:
    shown = trainer("stacks", *tour.words, "digits")
    assert all(task in shown for task in TASKS), shown


def test_an_archive_of_a_job_that_runs_has_files_of_its_chief_and_stacks(tour: Tour, tmp_path: Path) -> None:
    tour.job.until("a checkpoint", lambda s: s["last_checkpoint"])
    (words,) = (w for w in commands("trainer", "docs/debugging.md") if "--namespace" in w)
    here = {"team-a": tour.space.name, "digits-ps": "digits"}
    found = Debugged(tmp_path, *(here.get(word, word) for word in words[2:]))
    assert found.headline == "digits runs (running), and nothing has failed"
    assert json.loads(found.text("model_dir/state.json"))["generation"] == 1
    assert any("checkpoints/step-" in name for name in found.files)
    assert "chief:0" in found.text("stacks/now.txt")
    assert json.loads(found.text("status.json"))["phase"] == "running"
    assert not [name for name in found.files if name.endswith("variables.npz")]


def test_prometheus_scrapes_every_task_and_reaches_nothing_else(tour: Tour, elsewhere: Namespace) -> None:
    pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in tour.job.pods()}
    assert len(pods) == len(TASKS)
    discover(tour.monitoring)
    mine = f'{{namespace="{tour.space.name}"}}'
    scraped(tour.monitoring, f"up{mine}", dict.fromkeys(pods, 1.0))
    scraped(tour.monitoring, f"count by (pod) (trainer_build_info{mine})", dict.fromkeys(pods, 1.0))
    chief = tour.job.newest("chief")
    scraped(tour.monitoring, f"sum by (pod) (trainer_task_up{mine})", {chief: 4.0})
    scraped(tour.monitoring, f"trainer_memory_bytes{mine} > 50e6 < bool 8e9", dict.fromkeys(pods, 1.0))

    doors = [(pods[tour.job.newest(each)], port) for each in ("chief", "worker") for port in (2222, 3222)]
    assert {knock(tour.monitoring, "scraper", *door) for door in doors} == {"closed"}
    # One port is open, to one namespace and the pods that the spec names there.
    assert {knock(tour.monitoring, "scraper", address, 4222) for address in pods.values()} == {"open"}
    assert {knock(tour.monitoring, "other", address, 4222) for address in pods.values()} == {"closed"}
    assert {knock(elsewhere, "stranger", address, 4222) for address in pods.values()} == {"closed"}
    fetch = ("exec", "scraper", "--", "python3", "-c", FETCH, f"http://{pods[chief]}:4222")
    assert tour.monitoring.kubectl(*fetch).split() == ["200", "404", "404"]

    program = ("exec", tour.job.newest("worker"), "--", "python3", "-c", NO_REPORT)
    assert tour.space.kubectl(*program).split() == ["403"]  # it is not signed
    scraped(tour.monitoring, f"trainer_refused_reports_total{mine}", {chief: 1.0})


def test_another_pod_is_refused_by_the_network_policy_and_not_without_it(tour: Tour, elsewhere: Namespace) -> None:
    """TensorFlow has no server in a job whose tasks form a ring."""
    addresses = [tour.job.pods(each)[0]["status"]["podIP"] for each in ("chief", "worker")]
    assert [knock(tour.space, "job/digits-worker", address, 2222) for address in addresses] == ["closed"] * 2
    doors = [(address, port) for address in addresses for port in (5222, 3222)]
    assert [knock(elsewhere, "stranger", *door) for door in doors] == ["closed"] * 4
    assert [knock(tour.space, "job/digits-worker", *door) for door in doors] == ["open"] * 4
    # Longer than the chief tries: it has found that the policy is enforced.
    seen = tour.job.until("the check is over", lambda s: s["seconds"] > sum(network_policy.PAUSES) + 15)
    assert seen["warnings"] == []
    tour.space.kubectl("delete", "networkpolicy", "digits")
    deadline = time.monotonic() + 30
    while [knock(elsewhere, "stranger", *door) for door in doors] != ["open"] * 4:
        assert time.monotonic() < deadline, "nothing refuses the stranger any more, and it is not let in"


def test_the_page_is_live_and_goes_on_while_the_chief_moves(tour: Tour) -> None:
    words = ("digits", *tour.words)
    with opened(*words) as page:
        found = page.require_live(lambda: last_step(tour.job), TASKS, 4)
        require_that_a_second_one_ends(*words)
        chief, others = tour.job.newest("chief"), names(tour.job.pods("worker"))
        evict(tour.space, chief)
        page.until_next_chief(found)
        assert names(tour.job.pods("worker")) == others, "they have waited for the next chief"
        assert not any(each["status"].get("failed") for each in tour.space.get("jobs")), "no backoffLimit is used up"
        the_job_ends(tour, page)


def evict(space: Namespace, pod: str) -> None:
    """As `kubectl drain` does it."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": space.name}}
    kubectl(
        "create", "--raw", f"/api/v1/namespaces/{space.name}/pods/{pod}/eviction", "-f", "-", text=json.dumps(eviction)
    )


def names(pods: list[dict[str, Any]]) -> list[str]:
    return [each["metadata"]["name"] for each in pods]


def last_step(job: KubernetesJob) -> int:
    curve = job.space.kubectl("exec", job.newest("chief"), "--", "cat", f"/workspace/runs/{job.name}/metrics.jsonl")
    step: int = json.loads(curve.splitlines()[-1])["step"]
    return step


def the_job_ends(tour: Tour, page: Opened) -> None:
    """And with it what follows it: the page, its logs and its status."""
    tour.space.kubectl("exec", tour.job.newest("chief"), "--", "touch", GATE)
    code, out, err = page.until_it_ends()
    assert (code, out, err.splitlines()[-1]) == (Exit.OK, "", "trainer: digits is over: done")
    for name, process in tour.following.items():
        tour.printed[name], _ = process.communicate(timeout=JOB_SECONDS)
        assert process.returncode == 0, name


def test_what_has_followed_the_job_has_seen_it_run_and_end(tour: Tour) -> None:
    followed, seen = tour.printed["logs"], [json.loads(line) for line in tour.printed["status"].splitlines()]
    assert f"done: steps={STEPS} " in followed
    assert {line.split()[0] for line in followed.splitlines()} == TASKS
    assert any((each["job"] or {}).get("step") for each in seen), seen
    assert seen[-1]["phase"] == "done"
    assert f"done: steps={STEPS} " in seen[-1]["last_line"]
    assert "digits  done" in trainer("status", *tour.words)
    lines = trainer("logs", *tour.words, "digits", "--task", "worker:0").splitlines()
    assert lines
    assert all(line.startswith("worker:0 ") for line in lines)
    line = trainer("ui", "digits", *tour.words, code=Exit.TARGET)
    assert line.startswith("trainer: digits: has ended (done), and its files are in its volume: ")
    assert line.count("\n") == 1


def test_python_is_answered_while_an_event_loop_runs(tour: Tour) -> None:
    """As in a notebook, whose cells an event loop runs."""
    asyncio.run(ask(tour.space))


async def ask(space: Namespace) -> None:
    run = runs.attach("digits", "kubernetes", namespace=space.name)
    run.wait(0)
    assert (run.result.steps, run.result.job, run.result.generations) == (STEPS, "digits", 2)
    assert run.result.test_loss < 1
    assert {line.task for line in run.logs("worker:0")} == {"worker:0"}
    assert {(each.job, each.phase) for each in runs.jobs(namespace=space.name)} == {("digits", "done")}


def test_the_job_s_secret_is_in_its_secret_and_nowhere_else(tour: Tour) -> None:
    (secret,) = tour.space.get("secrets")
    assert secret["metadata"]["name"] == "digits-report-secret"
    (value,) = secret["data"].values()
    assert len(base64.b64decode(value)) >= 32
    others: list[str] = [tour.space.kubectl("get", EVERYTHING.replace("secrets,", ""), "--output=json")]
    for text in (*others, *tour.printed.values()):
        assert value not in text
        assert base64.b64decode(value).decode() not in text


def test_delete_leaves_the_volume_and_then_nothing(tour: Tour) -> None:
    # Its policy was deleted where a stranger is let in without it.
    again = trainer("submit", *tour.words, str(tour.path))
    assert "is done; made again: networkpolicy/digits; to run it again: trainer delete" in again
    assert "its volume stays" in trainer("delete", *tour.words, "digits")
    assert there(tour.space) == ["persistentvolumeclaim/digits"]
    trainer("delete", *tour.words, "digits", "--volumes")
    tour.space.kubectl("wait", "--for=delete", "persistentvolumeclaim/digits", "--timeout=60s", check=False)
    assert there(tour.space) == []
    assert "no such job" in trainer("status", *tour.words, "digits", code=Exit.TARGET)
