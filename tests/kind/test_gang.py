"""Jobs that Kueue admits as a whole, by the controllers that `scripts/kind.sh controllers` installs."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kind.cluster import JOB_SECONDS, Namespace, kubectl, trainer
from tests.local import specs
from trainer.job.errors import Exit

pytestmark = pytest.mark.part("kubernetes")

REPETITIONS = int(os.environ.get("TRAINER_GANG_RUNS", "2"))
API = "kueue.x-k8s.io/v1beta2"


@pytest.fixture
def queue(namespace: Namespace) -> Iterator[str]:
    """A local queue, with quota for three pods of 250 millicores, in which the higher priority preempts."""
    name = namespace.name
    resources = [{"name": "cpu", "nominalQuota": "800m"}, {"name": "memory", "nominalQuota": "100Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": name, "resources": resources}]}
    spec = {"preemption": {"withinClusterQueue": "LowerPriority"}, "namespaceSelector": {}, "resourceGroups": [group]}
    made: list[tuple[str, dict[str, Any]]] = [
        ("ResourceFlavor", {}),
        ("ClusterQueue", {"spec": spec}),
        ("WorkloadPriorityClass", {"value": 100}),
        ("LocalQueue", {"spec": {"clusterQueue": name}}),
    ]
    for kind, more in made:
        metadata = {"name": name, **({"namespace": name} if kind == "LocalQueue" else {})}
        text = json.dumps({"apiVersion": API, "kind": kind, "metadata": metadata, **more})
        kubectl("apply", "--filename=-", text=text)
    yield name
    for kind, _ in made[:3]:
        kubectl("delete", kind.lower(), name, "--wait=false")


def program(name: str, queue: str, **more: Any) -> dict[str, Any]:
    """Three tasks, which are over as soon as all are there."""
    return {
        "name": name,
        "strategy": "parameter_server",
        "program": ["python3", "-c", "pass"],
        "code": [],
        "tasks": {"worker": 2, "ps": 1},
        "kubernetes": {"gang": "jobset", "queue": queue, "volume": {"empty_dir": True}},
        **more,
    }


def submit(namespace: Namespace, folder: Path, spec: dict[str, Any], *words: str, code: int = 0) -> str:
    path = folder / f"{spec['name']}.json"
    path.write_text(json.dumps(spec))
    return trainer("submit", "--namespace", namespace.name, str(path), *words, code=code)


def until(what: str, reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + JOB_SECONDS
    while not reached():
        assert time.monotonic() < deadline, f"not within {JOB_SECONDS} s: {what}"
        time.sleep(1)


def pods(namespace: Namespace, name: str) -> list[str]:
    selector = f"--selector=app.kubernetes.io/instance={name}"
    return namespace.kubectl("get", "pods", selector, "--output=name").split()


def ended(namespace: Namespace, name: str) -> bool:
    return namespace.status(name)["phase"] in ("done", "failed")


def test_of_two_jobs_one_runs_whole_and_the_other_holds_nothing(
    namespace: Namespace, queue: str, tmp_path: Path
) -> None:
    space = ("--namespace", namespace.name)
    for run in range(REPETITIONS):
        first, second = f"first-{run}", f"second-{run}"
        for name in (first, second):
            submit(namespace, tmp_path, program(name, queue))
        for name in (first, second):
            until(f"{name} is over", partial(ended, namespace, name))
        freed, taken = chief_ended(namespace, first), min(created(namespace, second))
        assert freed <= taken, f"run {run}: {second} had a pod at {taken}, before {first} was over at {freed}"
        for name in (first, second):
            found = namespace.status(name)
            # JobSet removes pods that have not ended when its chief's Job is complete.
            assert (found["phase"], found["tasks"]["worker:0"]["state"]) == ("done", "succeeded")
            assert "generation 1 formed: 3 tasks" in trainer("logs", *space, name, "--task", "worker:0")
        assert f"{first}: already exists, and is done" in trainer("submit", *space, str(tmp_path / f"{first}.json"))
        for name in (first, second):
            trainer("delete", *space, name)
            assert pods(namespace, name) == []


def created(namespace: Namespace, name: str) -> list[str]:
    """When each pod was created."""
    return [each["metadata"]["creationTimestamp"] for each in namespace.get("pods") if of(each) == name]


def chief_ended(namespace: Namespace, name: str) -> str:
    """When worker 0 ended, which is the chief of a program."""
    (pod,) = (each for each in namespace.get("pods") if f"{name}-worker-0-0-" in each["metadata"]["name"])
    return str(pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"])


def of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["app.kubernetes.io/instance"])


def test_a_preempted_or_restarted_job_resumes_at_its_checkpoint(
    namespace: Namespace, queue: str, tmp_path: Path
) -> None:
    # A minute of steps: on a busy machine it takes a while until the urgent job is there.
    job = specs.mirrored(steps=3000, workload=specs.PACED, kubernetes={"gang": "jobset", "queue": queue})
    submit(namespace, tmp_path, job)
    reaches(namespace, 1)
    high = program("urgent", queue)
    high["kubernetes"]["labels"] = {"kueue.x-k8s.io/priority-class": queue}
    submit(namespace, tmp_path, high)
    until("the urgent job is over", lambda: ended(namespace, "urgent"))
    assert namespace.status("urgent")["phase"] == "done"
    kept = reaches(namespace, 101)
    # Fails the Job, and so starts the JobSet again.
    patch = '{"spec": {"activeDeadlineSeconds": 1}}'
    namespace.kubectl("patch", "job", "digits-worker-0", "--patch", patch)
    restarts = ("get", "jobset", "digits", "--output=jsonpath={.status.restarts}")
    until("the JobSet starts again", lambda: namespace.kubectl(*restarts) == "1")
    until("the job is over", lambda: ended(namespace, "digits"))
    found = namespace.status("digits")
    assert found["phase"] == "done", found
    assert "done: steps=3000 " in found["last_line"]
    log = trainer("logs", "--namespace", namespace.name, "digits", "--task", "chief:0")
    (resumed,) = re.findall(r"resume_step=(\d+)", log)
    assert int(resumed) >= kept


def reaches(namespace: Namespace, step: int) -> int:
    """Waits until the job is at this step; returns where it is."""
    seen: list[int] = []

    def there() -> bool:
        seen.append((namespace.status("digits").get("job") or {}).get("step") or 0)
        return seen[-1] >= step

    until(f"step {step}", there)
    return seen[-1]


def says(namespace: Namespace, name: str, reason: str) -> bool:
    return all(reason in row["reason"] for row in namespace.status(name)["tasks"].values())


def test_what_can_not_be_admitted_says_why(namespace: Namespace, queue: str, tmp_path: Path) -> None:
    submit(namespace, tmp_path, program("nowhere", "absent"))
    submit(namespace, tmp_path, program("large", queue, tasks={"worker": 6, "ps": 1}))
    for name, reason in (("nowhere", "LocalQueue absent doesn't exist"), ("large", "insufficient quota for cpu")):
        until(f"{name} says why", partial(says, namespace, name, reason))
        assert pods(namespace, name) == []
        trainer("delete", "--namespace", namespace.name, name)
    for gang, api in (("volcano", "scheduling.volcano.sh/v1beta1"), ("podgroup", "scheduling.k8s.io/v1beta1")):
        error = submit(namespace, tmp_path, program("other", "q", kubernetes={"gang": gang}), code=Exit.TARGET)
        assert f"kubernetes.gang: '{gang}': this cluster does not serve podgroups of {api}" in error
        assert [line for line in error.splitlines() if "warning" not in line] == error.splitlines()[-1:]
