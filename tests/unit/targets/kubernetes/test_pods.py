"""Why a task waits or how it ended, from objects as an API server gives them."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.targets.base import ContainerState
from trainer.targets.container import probe
from trainer.targets.kubernetes import logs, pods
from trainer.targets.kubernetes.names import COMPONENT, INSTANCE
from trainer.targets.kubernetes.status import _words

JOB: Any = {
    "metadata": {"name": "j-worker", "labels": {COMPONENT: "worker", INSTANCE: "j"}},
    "spec": {"completions": 2},
    "status": {},
}


def pod(index: int = 0, created: str = "2026-01-01T00:00:00Z", **status: Any) -> Any:
    labels = {COMPONENT: "worker", INSTANCE: "j", "batch.kubernetes.io/job-completion-index": str(index)}
    return {
        "metadata": {"name": f"j-worker-{index}-{created[17:19]}", "labels": labels, "creationTimestamp": created},
        "spec": {"nodeName": "n", "volumes": [{"name": "runs", "persistentVolumeClaim": {"claimName": "j"}}]},
        "status": {"phase": "Pending", **status},
    }


def state(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "task", "state": state}]}


def event(kind: str, name: str, reason: str, message: str, time: str = "2026-01-01T00:00:01Z") -> dict[str, Any]:
    return {
        "involvedObject": {"kind": kind, "name": name},
        "reason": reason,
        "message": message,
        "lastTimestamp": time,
    }


def row(*found: Any, claims: Any = (), warnings: Any = ()) -> ContainerState:
    return pods.tasks([JOB], found, claims, warnings)["worker:0"]


UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]
CLAIM: Any = {"metadata": {"name": "j"}, "status": {"phase": "Pending"}}


@pytest.mark.parametrize(
    ("status", "more", "reason"),
    [
        (state(waiting={"reason": "ErrImagePull", "message": "no\nsuch"}), {}, "ErrImagePull: no such"),
        (state(waiting={"reason": "ContainerCreating"}), {}, ""),
        (
            state(waiting={"reason": "ContainerCreating"}),
            {"warnings": [event("Pod", "j-worker-0-00", "FailedMount", "gone")]},
            "FailedMount: gone",
        ),
        ({}, {"warnings": [event("Pod", "j-worker-0-00", "Unhealthy", "not ready yet")]}, ""),
        ({"conditions": UNSCHEDULABLE}, {}, "Unschedulable: 0/3 nodes"),
        (
            {"conditions": UNSCHEDULABLE},
            {"claims": [CLAIM], "warnings": [event("PersistentVolumeClaim", "j", "Failed", "no class")]},
            "Unschedulable: 0/3 nodes; claim j is not bound: Failed: no class",
        ),
        ({}, {"claims": [{**CLAIM, "metadata": {"name": "another"}}]}, ""),
    ],
)
def test_why_a_pod_waits(status: Any, more: Any, reason: str) -> None:
    found = row(pod(**status), **more)
    assert (found.state, found.reason) == ("pending", reason)


MISSING = {"reason": "CreateContainerConfigError", "message": 'secret "s3" not found'}


@pytest.mark.parametrize(
    ("phase", "status", "found"),
    [
        # What a kubelet reports of a variable, of a container before the task, and of a volume.
        ("Pending", state(waiting=MISSING), 'CreateContainerConfigError: secret "s3" not found'),
        (
            "Pending",
            {**state(waiting={"reason": "PodInitializing"}),
             "initContainerStatuses": [{"name": "fetch", "state": {"waiting": MISSING}}]},
            'fetch: CreateContainerConfigError: secret "s3" not found',
        ),
        (
            "Failed",
            {**state(waiting={"reason": "PodInitializing"}),
             "initContainerStatuses": [
                 {"name": "first", "state": {"terminated": {"exitCode": 0}}},
                 {"name": "fetch", "state": {"terminated": {"exitCode": 7, "message": "x\nno route\n"}}},
             ]},
            "fetch: no route",
        ),
    ],
)  # fmt: skip
def test_the_container_that_keeps_a_task_from_starting_is_named(phase: str, status: Any, found: str) -> None:
    told = row(pod(**{"phase": phase, **status}))
    assert (told.state, told.code, told.reason) == (phase.lower(), 0, found)


def test_the_end_of_a_sidecar_is_not_the_tasks() -> None:
    beside: Any = {
        "initContainerStatuses": [{"name": "logs", "state": {"terminated": {"exitCode": 1, "message": "bye"}}}]
    }
    found = row(pod(phase="Failed", **state(terminated={"exitCode": 18, "message": "ValueError: x"}), **beside))
    assert (found.code, found.reason) == (18, "ValueError: x")


def test_a_container_that_a_mesh_puts_before_the_task_is_not_the_task() -> None:
    proxy = {"name": "istio-proxy", "state": {"running": {}}}

    def beside_a_proxy(task: dict[str, Any], **more: Any) -> Any:
        found = pod(containerStatuses=[proxy, *state(**task)["containerStatuses"]], **more)
        found["spec"]["containers"] = [{"name": "istio-proxy"}, {"name": "task", "command": ["trainer", "task"]}]
        return found

    missing, failed = {"reason": "ErrImagePull", "message": "no"}, {"exitCode": 13, "message": "ValueError: x"}
    waits = beside_a_proxy({"waiting": missing})
    ended = beside_a_proxy({"terminated": failed}, phase="Failed")
    assert row(waits).reason == "ErrImagePull: no"
    assert (row(ended).code, row(ended).reason) == (13, "ValueError: x")
    assert pods.failed_for_good(JOB, [ended], "worker:0") == 13
    assert [logs._started(each) for each in (waits, ended)] == [False, True]
    # Only the image of a program may lack python3.
    assert _words(ended) == probe(of_program=True)


def beside(code: int) -> Any:
    """A pod whose task has ended, beside the proxy of a mesh that runs on."""
    statuses = [
        {"name": "istio-proxy", "state": {"running": {}}},
        {"name": "task", "state": {"terminated": {"exitCode": code, "message": "the last line"}}},
    ]
    return pod(phase="Running", containerStatuses=statuses)


@pytest.mark.parametrize(
    ("code", "state", "outcome"), [(0, "succeeded", "done"), (13, "failed", "failed"), (143, "failed", None)]
)
def test_a_container_that_keeps_the_pod_of_a_task_that_has_ended_is_named(
    code: int, state: str, outcome: str | None
) -> None:
    found = row(beside(code))
    assert (found.state, found.code) == (state, code)
    kept = f"the task has ended with {code}, but container istio-proxy keeps its pod, and with it its Job"
    assert kept in (found.reason or "")
    policy: Any = {**JOB, "spec": {**JOB["spec"], "podFailurePolicy": {}}}
    assert pods.over(policy, [beside(code)], "worker:0") == outcome
    running = pod(phase="Running", containerStatuses=[{"name": "task", "state": {"running": {}}}])
    assert pods.over(JOB, [running], "worker:0") is None


def test_the_chiefs_job_is_that_of_worker_0_if_there_is_no_other() -> None:
    def job(task_type: str) -> Any:
        return {"metadata": {"name": f"j-{task_type}", "labels": {COMPONENT: task_type, INSTANCE: "j"}}}

    alone, both = pods.chief_of([job("ps"), job("worker")]), pods.chief_of([job("worker"), job("chief")])
    assert alone == (job("worker"), "worker:0")
    assert both == (job("chief"), "chief:0")
    assert pods.chief_of([job("evaluator")]) is None


def test_the_last_warning_about_a_job_is_the_reason_why_it_has_no_pod() -> None:
    warnings = [
        event("Job", "j-worker", "FailedCreate", "new", "2026-01-01T00:00:09Z"),
        event("Job", "j-worker", "FailedCreate", "old"),
    ]
    assert row(warnings=warnings) == ContainerState("missing", code=0, node="", restarts=0, reason="FailedCreate: new")


def test_the_newest_pod_counts_and_the_others_are_restarts() -> None:
    killed = state(terminated={"exitCode": 137, "reason": "OOMKilled"})
    older = pod(created="2026-01-01T00:00:00Z", phase="Failed", **killed)
    newer = pod(created="2026-01-01T00:00:05Z", phase="Running", **state(running={}))
    assert row(older).reason == "OOMKilled"
    found = row(newer, older)
    assert (found.state, found.restarts, found.reason) == ("running", 1, "")


def test_a_failed_task_is_quoted() -> None:
    log = "worker:0 of j has started\ntrainer: asked for 1 GPU\n"
    found = row(pod(phase="Failed", **state(terminated={"exitCode": 12, "message": log, "reason": "Error"})))
    assert (found.code, found.reason) == (12, "trainer: asked for 1 GPU")


def test_when_a_new_pod_comes_is_said_of_a_task_that_comes_back() -> None:
    stopped = pod(phase="Failed", **state(terminated={"exitCode": 143, "message": "stopped by a signal"}))
    assert row(stopped).reason == f"stopped by a signal; {pods.BACK_OFF}"
    over: Any = {**JOB, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    assert pods.tasks([over], [stopped], [], [])["worker:0"].reason == "stopped by a signal"
    assert pods.tasks([JOB], [stopped], [], [])["worker:1"].reason == (
        f"its Job has not created a pod yet; {pods.BACK_OFF}"
    )
    assert pods.tasks([JOB], [], [], [])["worker:1"].reason == "its Job has not created a pod yet"


def test_every_index_has_a_row() -> None:
    assert list(pods.tasks([JOB], [pod(1)], [], [])) == ["worker:0", "worker:1"]


@pytest.mark.parametrize(("kind", "ended"), [("Complete", "done"), ("Failed", "failed"), ("Suspended", None)])
def test_the_condition_of_a_job_ends_it(kind: str, ended: str | None) -> None:
    job: Any = {**JOB, "status": {"conditions": [{"type": kind, "status": "True"}]}}
    assert pods.ended(job) == ended
    job["status"]["conditions"][0]["status"] = "False"
    assert pods.ended(job) is None


def on_a_lost_node(**status: Any) -> Any:
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}]
    found = pod(phase="Running", conditions=conditions, **status)
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    return found


def test_a_pod_that_waits_for_a_lost_node_names_the_node_and_the_ways_out() -> None:
    found = row(on_a_lost_node(**state(running={})))
    assert (found.state, found.node) == ("lost", "n")
    assert found.reason is not None
    assert "its node n does not answer" in found.reason
    assert "`kubectl delete node n`" in found.reason
    assert "kubernetes.volume.access: ReadWriteMany" in found.reason


def test_the_successor_of_a_pod_on_a_lost_node_is_the_task() -> None:
    found = row(on_a_lost_node(**state(running={})), pod(created="2026-01-01T00:02:00Z", phase="Running"))
    assert (found.state, found.restarts) == ("running", 1)


@pytest.mark.parametrize(
    ("condition", "ended"),
    [("Complete", "done"), ("SuccessCriteriaMet", "done"), ("Failed", "failed"), ("FailureTarget", "failed")],
)
def test_a_job_has_ended_though_a_pod_of_it_is_on_a_lost_node(condition: str, ended: str) -> None:
    for status, expected in (("True", ended), ("False", None)):
        job: Any = {**JOB, "status": {"conditions": [{"type": condition, "status": status}]}}
        assert pods.ended(job) == expected


@pytest.mark.parametrize(("code", "final"), [(13, 13), (15, None), (143, None), (137, None), (0, None)])
def test_a_chief_that_is_started_again_has_failed_if_that_changes_nothing(code: int, final: int | None) -> None:
    ended = pod(phase="Failed", **state(terminated={"exitCode": code}))
    found = [ended, pod(created="2026-01-01T00:00:10Z")]
    assert pods.failed_for_good(JOB, found, "worker:0") == final
    with_policy: Any = {**JOB, "spec": {**JOB["spec"], "podFailurePolicy": {}}}
    assert pods.failed_for_good(with_policy, found, "worker:0") is None


def test_a_job_whose_newest_chief_runs_has_not_failed() -> None:
    """The one before was cut off with its node, and took the silence of the others for their end."""
    before = pod(phase="Failed", **state(terminated={"exitCode": 18}))
    now = pod(created="2026-01-01T00:02:00Z", phase="Running", **state(running={}))
    assert pods.failed_for_good(JOB, [before, now], "worker:0") is None
